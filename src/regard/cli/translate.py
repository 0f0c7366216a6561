"""`regard translate RUN`: one answer a line, to lines from standard input, a file, or the command line."""

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from regard.cli.carrying import Answers, read_markup, tell_heads, with_links, with_markup
from regard.cli.lines import numbered_chunks, open_lines, read_line
from regard.cli.parsing import first_word, parse, take_text, wants_help, with_empty_value
from regard.cli.screen import open_on_screen
from regard.cli.terminal import answer_output, print_table
from regard.cli.words import say
from regard.convert import EngineName, Precision
from regard.data.markup import MarkedText
from regard.data.unknown_tokens import WARNING_SHARE, UnknownCount
from regard.data.vocabulary import is_blank
from regard.errors import InputError
from regard.fast.memory import keep_memory
from regard.runs import SAVEPATH, SequenceRun, load_translator
from regard.viz import AttentionMap, check_ending

PROG = "regard translate"
DESCRIPTION = (
    "Answer texts with a trained run, one line each, in order: TEXT, or else the lines of --input, or else of "
    "standard input. RUN: a task's name, or a run's folder. A blank line is answered by an empty line; "
    "characters that training never saw are read as one unknown symbol; bytes that are not UTF-8 as such a "
    "character; and a line that is too long is answered by an empty line. Each of the last three is told on "
    "standard error, with the number of the line."
)


@dataclass(frozen=True, kw_only=True)
class TranslateFlags:
    """All flags of the command."""

    input: Path | None = None
    """File of texts, one a line, in UTF-8. None: standard input."""
    lenient: bool = False
    """Read files that are not UTF-8, or have zero bytes, instead of stopping: such characters are unknown."""
    beam: int | None = None
    """Prefixes kept side by side; 1 is greedy search. None: 5 for runs on parallel text, else 1."""
    length_penalty: float | None = None
    """Exponent of the length penalty; 0 for none, above it longer answers are preferred. None: 1 for runs on
    parallel text, else 0."""
    n_best: int = 1
    """Answers to each line, best first, each on a line of its own (at most beam)."""
    temperature: float = 0.0
    """Above 0: draw each token from the model's distribution at this temperature, instead of searching."""
    seed: int = 0
    """Random seed of what is drawn (0 or more). The same text and seed give the same answer, whatever other texts
    there are: for several answers to a text, give several seeds."""
    scores: bool = False
    """Write each answer's log-probability (nats) and a tab before it."""
    align: bool = False
    """Write the links of its words behind each answer, as ` ||| 0-0 1-2`: source and target word, from 0, by the
    heads that `regard align` has chosen."""
    tags: bool = False
    """Read texts as markup, and carry their tags (<b>, <a href="...">, <br/>) over to the answers, around the
    words that come from theirs."""
    batchsize: int = 64
    """Texts that go through the model at once."""
    plot: str | None = None
    """Draw what each character of the answer to TEXT attended to: here, and into this file (.png, .svg, .pdf or
    .html). Without a name: alignment.png in the run's folder. It is opened where there is a screen."""
    engine: EngineName = "auto"
    """What searches: regard, our own search; ctranslate2, the same search by that library (needs the extra
    export), for Transformers on text, converted once into the run's folder; auto: ctranslate2 where that can be,
    else regard."""
    precision: Precision = "float32"
    """Of the weights while they are multiplied; int8, which ctranslate2 alone has, is faster and not quite the
    same model."""
    words: bool = False
    """Draw whole words instead of their pieces."""
    savepath: Path = Path(SAVEPATH)
    """Folder of runs."""
    trust_code: bool = False
    """Run the code of its own that the run names (task, model, score), which nobody has trained with here."""
    trust_edited: bool = False
    """Use the run also where its files were edited or mixed; what differs is said."""


def run(argv: list[str]) -> None:
    """Translate as `argv` asks."""
    if wants_help(argv[:1]):
        parse(TranslateFlags(), argv, prog=f"{PROG} RUN [TEXT]", description=DESCRIPTION)
    name, argv = first_word(argv, what="run", prog=PROG, example="dates")
    text, argv = take_text(with_empty_value(argv, "--plot"), TranslateFlags)
    flags = parse(TranslateFlags(), argv, prog=f"{PROG} {name} [TEXT]", description=DESCRIPTION)
    run = load_translator(
        name, savepath=flags.savepath, trust_code=flags.trust_code, trust_edited=flags.trust_edited
    )
    keep_memory()
    if flags.align and flags.tags:
        raise InputError("align counts words without tags: leave out align or tags")
    if text is not None:
        if flags.input is not None:
            raise InputError(f"text {text!r} and --input are given: leave out one of them")
        plot = None if flags.plot is None else Path(flags.plot or run.folder / "alignment.png")
        if plot is not None:
            check_ending(plot)
            flags = dataclasses.replace(flags, engine=_drawing_engine(run, flags))
        marked = read_markup(text, "the text") if flags.tags else MarkedText(text)
        text = marked.text
        if plot is not None and is_blank(text):
            raise InputError("the text is blank: its answer is empty, and there is nothing to draw")
        answers: list[Answers] = [None] if is_blank(text) else [*run.search([text], **_search(flags))]
        _write(_with_more(run, [marked], answers, flags), flags)
        if plot is not None and answers[0]:
            drawn = run.attend(text, answer=answers[0][0])
            _draw(drawn.words() if flags.words else drawn, plot)
        if flags.align or flags.tags:
            tell_heads(run)
        if note := run.unseen_length(text):
            say(f"training {note}: errors are to be expected")
        _tell_unknown(run, text, "the text")  # once the answer stands: what cannot be written is told alone
        return
    if flags.plot is not None:
        raise InputError("--plot draws one text: give it after the run, as in `regard translate dates 'Mai 3'`")
    with open_lines(flags.input, lenient=flags.lenient) as file:
        _translate_lines(run, file, flags)


def _drawing_engine(run: SequenceRun, flags: TranslateFlags) -> EngineName:
    """Return what searches an answer that is drawn: our own search, which what is drawn belongs to."""
    if flags.engine == "ctranslate2":
        raise InputError("--plot draws what our own search finds, not CTranslate2: leave out one of them")
    if flags.engine == "auto" and flags.precision == "float32" and run.engines.runs_in_ctranslate2:
        say("our own search answers: --plot draws what it finds")
    return "regard"


def _search(flags: TranslateFlags) -> dict[str, Any]:
    return {
        "beam": flags.beam,
        "length_penalty": flags.length_penalty,
        "n_best": flags.n_best,
        "temperature": flags.temperature,
        "seed": flags.seed,
        "batchsize": flags.batchsize,
        "engine": flags.engine,
        "precision": flags.precision,
        "scored": flags.scores,
    }


def _translate_lines(run: SequenceRun, file: BinaryIO, flags: TranslateFlags) -> None:
    """Answer every line of `file` as it comes, in order."""
    unknown = UnknownCount()
    for lines in numbered_chunks(file):
        marked, texts = [], []
        for number, line in lines:
            marked.append(_read(line, number, flags))
            texts.append(_checked(run, marked[-1].text, number, unknown))
        found = iter(run.search([text for text in texts if text is not None], **_search(flags)))
        answers = [next(found) if text is not None else None for text in texts]
        _write(_with_more(run, marked, answers, flags), flags)
    if flags.align or flags.tags:
        tell_heads(run)
    if warning := unknown.warning("the input"):
        say(f"warning: {warning}")


def _read(line: bytes, number: int, flags: TranslateFlags) -> MarkedText:
    text = read_line(line, number)
    return read_markup(text, f"line {number}") if flags.tags else MarkedText(text)


def _with_more(
    run: SequenceRun, marked: Sequence[MarkedText], answers: Sequence[Answers], flags: TranslateFlags
) -> Sequence[Answers]:
    """Return answers with what is to be added to them."""
    if flags.tags:
        return with_markup(run, marked, answers)
    if flags.align:
        return with_links(run, [each.text for each in marked], answers)
    return answers


def _checked(run: SequenceRun, text: str, number: int, unknown: UnknownCount) -> str | None:
    """Return the text of a line, or None where it is blank or too long; tells what could not be read as it
    stands, and counts what is unknown."""
    if is_blank(text):
        return None
    if (reason := run.too_long(text)) is not None:
        say(f"line {number} {reason}: its answer is empty")
        return None
    if note := run.unseen_length(text):
        say(f"line {number} is longer than in training, which {note}")
    unknown.add(run.task.source_vocabulary.encode(text))
    _tell_unknown(run, text, f"line {number}")
    return text


def _tell_unknown(run: SequenceRun, text: str, which: str) -> None:
    vocabulary = run.task.source_vocabulary
    if unknown := vocabulary.unknown(text):
        count = UnknownCount()
        count.add(vocabulary.encode(text))
        share = f" ({count.share:.0%} of it)" if count.share > WARNING_SHARE else ""
        say(f"{which} has {vocabulary.unit} that training never saw{share}: {' '.join(map(repr, unknown))}")


def _write(answers: Sequence[Answers], flags: TranslateFlags) -> None:
    """Write the answers, and `n_best` lines for each, empty ones where there are fewer."""
    output = answer_output()
    for answer in answers:
        for rank in range(flags.n_best):
            found = answer[rank] if answer is not None and rank < len(answer) else None
            before = f"{found.log_probability:.4f}\t" if flags.scores and found is not None else ""
            output.write(f"{before}{'' if found is None else found.text}\n")
    output.flush()


def _draw(attention: AttentionMap, plot: Path) -> None:
    attention.save(plot)
    print_table(attention.table())
    sys.stdout.write(f"Saved {plot}\n")
    open_on_screen(plot)
