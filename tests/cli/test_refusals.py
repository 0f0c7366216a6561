"""Bad input is refused in one line with status 2, before anything is read from standard input or written."""

import io
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import regard
from tests.conftest import Command
from tests.german import LINKS, sentences, write

RUNS = ("RUN", "DATES", "GERMAN")
"""A run of signal2, a run of dates and a translator; words of the command lines below stand for their folders."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with texts. Standard input fails if it is read."""

    class Unread(io.BytesIO):
        def peek(self, *_: Any) -> bytes:
            raise AssertionError("standard input was read")

        read = readline = __next__ = peek

    (tmp_path / "text").mkdir()
    text = write(tmp_path / "text")
    pairs = sentences()[200:]
    valid = zip(*(Path(path).read_text(encoding="utf-8").splitlines() for path in text["valid"]), strict=True)
    files = {
        "valid.tsv": [f"{source}\t{target}" for source, target in valid],
        "repeated.tsv": ["der Hund\tthe dog"] * 60,
        "empty.tsv": [],
        "blank.tsv": [""],
        "a.tsv": ["a\tb"],
        "a.de": [source for source, _ in pairs],
        "a.en": [target for _, target in pairs],
        "a.links": [LINKS] * len(pairs),
        "past.links": ["9-0", *[LINKS] * (len(pairs) - 1)],
        "short.en": ["0-0"],
        "half.tsv": ["Hund"],
        "three.tsv": ["Hund\tdog\tcat"],
        "no_source.tsv": ["\tdog"],
        "twice.tsv": ["Hund\tdog", "", "Hund\tfox"],
        "unknown.tsv": ["Hund\t☃"],
        "mine.py": [],
    }
    files["more.tsv"] = files["valid.tsv"]
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Unread()))
    return tmp_path


def check(command: Command, words: list[str | Path], message: str, *, keeps: bool = True) -> None:
    """Run a command line that is refused. `keeps`: it writes nothing."""
    before = set(Path.cwd().rglob("*"))
    status, out, err = command(*words)
    assert (status, out) == (2, "") and message in err, (status, out, err)
    assert err.startswith("regard: ") and err.count("\n") == 1, err
    written = {path for path in set(Path.cwd().rglob("*")) - before if path.is_file()}
    assert not keeps or not written, written


PLAIN = [
    ("trian", "command 'trian' is unknown: did you mean train?"),
    # train
    ("train", "there is no name: name the task first, as in `regard train counting`"),
    ("train --steps 3", "flag '--steps' comes first: name the task first"),
    ("train signals", "task 'signals' is unknown: did you mean signal?"),
    ("train counting --stepps 3", "Unrecognized options: --stepps, 3; Perhaps you meant:"),
    ("train counting --steps many", "--steps 'many' is not a whole number: give a whole number"),
    ("train counting --lr fast", "--lr 'fast' is not a number: give a number"),
    ("train counting --steps", "Missing value for argument '--steps'"),
    ("train counting --steps 0", "steps 0 is out of range: choose from 1 to 1000000000"),
    ("train signal2 --heads 5", "hidden 64 cannot be split into 5 heads: choose a multiple of 5"),
    ("train counting --recipe my", "invalid choice 'my' for argument '--recipe'"),
    ("train counting --pos_enc=maybe", "--pos_enc 'maybe' is not a boolean: give --pos_enc=True"),
    ("train counting --resume", "train a run first, or give its folder"),
    ("train difference --vocab_size=1", "vocab_size 1 is too small: difference needs 2 letters"),
    ("train counting --lr nan", "lr nan is out of range: choose a finite number above 0"),
    ("train counting --savepath file", "cannot write "),
    ("train dates --locales en,xx", "locale 'xx' is unknown"),
    ("train dates --model query", "model 'query' does not fit task dates: choose recurrent or transformer"),
    ("train counting --model recurrent", "does not fit task counting: choose query or pooling"),
    ("train dates --pos_enc", "pos_enc"),
    ("train dates --locales en,en", "give one or more"),
    ("train recall --max_len 4", "max_len 4 is out of range: choose from 5 to 10000"),
    ("train counting --vocab_size 27", "vocab_size 27 is out of range: choose from 1 to 26"),
    ("train counting --max_len 0", "max_len 0 is out of range: choose from 1 to 10000"),
    ("train signal2 --hidden 0", "hidden 0 is out of range: choose from 1 to 65536"),
    ("train signal2 --enc_layers -1", "enc_layers -1 is out of range: choose from 0 to 100"),
    ("train induction --max_len 15 --vocab_size 20", "max_len 15 is out of range: choose from 16 to 28"),
    ("train induction --repeated 1", "repeated 1 is out of range: choose from 2 to "),
    ("train mqar --max_len 31", "max_len 31 is out of range: choose from 32"),
    ("train mqar --pairs 33", "pairs 33 is out of range: choose from 1 to 32"),
    ("train modular --modulus 1", "modulus 1 is out of range: choose from 2 to 1000"),
    ("train modular --train_share 1", "train_share 1.0 of 3481 pairs is out of range"),
    ("train selective-copy --max_len 15", "max_len 15 is out of range: choose from 16"),
    ("train parity --test_len 9", "test_len 9 is out of range: choose from 10"),
    ("train dyck --vocab_size 9", "vocab_size 9 is out of range: choose from 1 to 8"),
    ("train dyck --depth 0", "depth 0 is out of range"),
    ("train regression --dims 0", "dims 0 is out of range"),
    ("train dates --model", "flag --model has no value"),
    ("train recall --model recurrent", "does not fit task recall: choose query or pooling"),
    ("train reverse --context cell --query current", "query current does not fit context cell"),
    ("train recall --pairs 9", "pairs 9 is out of range: choose from 1 to 8"),
    ("train translation", "translation needs training text: give --train"),
    ("train translation --train nowhere.tsv", "nowhere.tsv' does not exist"),
    ("train translation --preset huge", "preset 'huge' does not fit"),
    ("train translation --hub x", "hub needs the source and target columns: give --languages"),
    ("train translation --dropout 1", "dropout 1.0 is out of range"),
    # commands on runs
    ("show none", "no run 'none'"),
    ("show", "name the run first"),
    ("show signal2 --port 70000", "port 70000 is out of range"),
    ("show counting --live page.html --compare_with signal", "leave out --compare_with"),
    ("test counting", "no run 'counting' in 'models': train the run with `regard train`, or give its --savepath"),
    # plot
    ("plot heatmap", "figure 'heatmap' is unknown: choose"),
    ("plot heads", "heads needs a model: name a run, or the folder of an external model"),
    ("plot heads nowhere", "no run 'nowhere' in 'models'"),
    ("plot positions -o waves.html", "plot 'waves.html' has no known extension: choose one of .png, .svg"),
    ("plot positions --width 4", "width"),
    ("plot positions --dimensions 0", "dimensions 0 is out of range: choose from 1 to 65536"),
    ("plot positions --length 0", "length 0 is out of range"),
    ("plot positions --samples 0", "samples 0 is out of range"),
    ("plot positions --style absent.mplstyle", "style 'absent.mplstyle' cannot be read: No such file"),
    # compare, card, clean, write
    ("compare counting --vary heads=1 --explorer x", "--explorer has no effect without --html"),
    ("compare reverse", "no flag to vary: give a flag and its values"),
    ("compare reverse --vary score", "vary 'score' has no values"),
    ("compare reverse --vary score=dot,dto", "score 'dto' is unknown"),
    ("compare reverse --vary scroe=dot", "flag 'scroe' is unknown: did you mean score?"),
    ("compare reverse --vary score=dot,dot", "each value once"),
    ("compare reverse --vary hidden=4,x", "hidden"),
    ("compare reverse --vary seed=1,2", "seed cannot be set"),
    ("compare reverse --vary context=cell,output --query current", "query current does not fit context cell"),
    ("compare reverse --vary score=dot --seeds 0", "seeds 0 is out of range"),
    ("compare reverse --vary", "flag --vary has no value"),
    ("compare translation --train text/train.de text/train.en --vary hidden=8", "has no test text: give a text"),
    ("bench --methods atention", "did you mean attention?"),
    ("bench --methods missing.py", "does not exist"),
    ("bench --methods nowhere:function", "no module 'nowhere'"),
    ("bench --models countin", "model 'countin' is unknown"),
    ("bench --seeds 0", "seeds 0 is out of range"),
    ("bench --json no/folder.json", "cannot write"),
    ("card", "name one mechanism"),
    ("card sink --all", "name one mechanism"),
    ("card sinc", "attention part 'sinc' is unknown"),
    ("card alibi,rotary", "both for the slot position"),
    ("card grouped:3", "grouped"),
    ("card sink --seeds 0", "seeds"),
    ("card sink --cpus 2", "--cpus does not apply to --on here: leave it out, or give --on ray or slurm"),
    ("clean", "there is no name: name the corpus first, as in `regard clean train.de train.en`"),
    ("clean none.tsv", "does not exist"),
    ("clean a.tsv --most_characters 0", "most_characters 0 is out of range"),
    ("clean a.tsv --most_ratio 0.5", "most_ratio 0.5 is out of range: choose a finite number at least 1"),
    ("clean a.tsv --scripts latin", "1 scripts: give two"),
    ("clean a.tsv --scripts latin klingon", "script 'klingon' is unknown"),
    ("clean a.tsv --min_score 2", "--min_score has no effect without --runs"),
    ("clean a.tsv --min_score 2 --runs no", "min_score 2"),
    ("clean a.tsv --runs no", "no run 'no'"),
    ("clean a.tsv --runs a b c", "3 runs: give one from source to target, and optionally one from target to"),
    ("write revers", "puzzle 'revers' is unknown: choose first"),
    ("write mine.py", "'mine.py' is not the name of a puzzle: add --puzzle NAME"),
    ("write mine.py --puzzle sorts", "puzzle 'sorts' is unknown"),
    ("write first.py", "'first.py' is not a Python file"),
    ("write mine.py --hide found --alphabet aa", "alphabet 'aa' must have different letters"),
    ("write mine.py --hide found --longest 0", "longest 0 is out of range"),
    ("write first.py --seed=-1", "seed -1 is out of range"),
    ("write --page", "the first word must be a puzzle, a file or a folder"),
    ("write first.py --score key.json", "key.json"),
    ("write .", "model.json"),
    ("write previous --causal", "--causal has no effect without --hide"),
]
OF_A_RUN = [
    ("test RUN --input ABCX", "letter 'X' at step 3 is not in the vocabulary: use A, B, C"),
    (f"test RUN --input {'A' * 14}", "has 14 steps: signal2 takes 3 signals and 1 to 10 letters"),
    ("test RUN --input ABC", "has 3 steps: signal2 takes 3 signals and 1 to 10 letters"),
    ("test RUN --sample_len 11", "sample_len 11 is out of range: choose from 1 to 10"),
    ("test RUN --signal Q", "letter 'Q' at step 0 is not in the vocabulary"),
    ("test RUN --samples 0", "samples 0 is out of range"),
    ("test RUN --plot a.doc", "plot 'a.doc' has no known extension: choose one of .png"),
    ("test RUN --plot /nowhere/at/all.png", "cannot write '/nowhere/at/all.png': No such file"),
    ("test RUN --json no/where.json", "cannot write 'no/where.json'"),
    ("test RUN --multihead=False", "was trained with multihead True, not False: train another run with False"),
    ("test RUN --heads 4", "was trained with heads 2, not 4: train another"),
    ("test RUN --heads 3", "was trained with heads 2, not 3: train another"),
    ("test RUN --hidden=7", "was trained with hidden 8, not 7: train another"),
    ("test RUN --model pooling", "was trained with model query, not pooling"),
    ("test RUN --sampels 3", "Unrecognized options: --sampels, 3"),
    ("test RUN --signal AB", "signal 'AB' has 2 letters: give 1 letter or 3 letters, one for each signal"),
    ("test DATES --sample_len 5", "dates have no adjustable length"),
    ("test DATES --signal A", "dates has no signals"),
    ("explain RUN --depth 3", "--depth has no effect without --why"),
    ("explain DATES --why", "is recurrent: its states are not sums of outputs"),
    ("examine RUN --explorer http://x", "--explorer has no effect without --html"),
    ("examine RUN --samples 1", "samples 1 is out of range"),
    ("prune RUN --heads 9", "heads 9 is out of range"),
    ("prune RUN --seed=-1", "seed -1 is out of range"),
    ("translate RUN ABC", "answers with numbers, not text"),
    ("trust RUN", "answers with numbers"),
    ("translate DATES x --plot a.gif", "plot 'a.gif' has no known extension"),
    ("translate DATES --plot a.png", "--plot draws one text"),
    ("translate DATES --input nowhere.txt", "file 'nowhere.txt' does not exist: check its name"),
    ("translate DATES --input .", "cannot read '.': Is a directory"),
    ("translate DATES x --n_best 2", "n_best 2 exceeds beam 1: lower n_best, or raise beam"),
    (f"translate DATES {'9' * 1000}", "text 0, '99999999999999999999…', has 1000 characters, but at most 360"),
]
OF_A_TRANSLATOR = [
    # options of a search, before lines are read
    ("translate GERMAN --beam 0", "beam 0 is out of range: choose from 1 to 1000"),
    ("translate GERMAN --beam 1001", "beam 1001 is out of range"),
    ("translate GERMAN --beam 2 --n_best 0", "n_best 0 is out of range"),
    ("translate GERMAN --beam 2 --temperature 1", "exclude each other"),
    ("translate GERMAN --beam 2 --n_best 3", "n_best 3 exceeds beam 2: lower n_best, or raise beam"),
    ("translate GERMAN --beam 1 --length_penalty nan", "length_penalty nan is out of range: choose from 0"),
    ("translate GERMAN --beam 2 --length_penalty -1", "length_penalty -1.0 is out of range"),
    ("translate GERMAN --beam 1 --length_penalty 2", "--length_penalty 2 ranks answers"),
    ("translate GERMAN --temperature 1 --length_penalty 2", "--length_penalty 2 ranks answers"),
    ("translate GERMAN --temperature nan", "temperature nan is out of range: choose from 0.001 to 1000, or 0"),
    ("translate GERMAN --temperature -1", "temperature -1.0 is out of range"),
    ("translate GERMAN --temperature inf", "temperature inf is out of range"),
    ("translate GERMAN --temperature 1 --top_k -1", "top_k -1 is out of range"),
    ("translate GERMAN --temperature 1 --top_p nan", "top_p nan is out of range"),
    ("translate GERMAN --temperature 1 --top_p 0", "top_p 0.0 is out of range: choose above 0 and at most 1"),
    ("translate GERMAN --temperature 1 --seed -1", "seed -1 is out of range"),
    ("translate GERMAN --top_k 3", "top_k, top_p and seed change sampling, but there is no temperature"),
    ("translate GERMAN --seed 3", "top_k, top_p and seed change sampling, but there is no temperature"),
    ("translate GERMAN --batchsize 0", "batchsize 0 is out of range"),
    ("translate GERMAN --min_length 5 --max_length 3", "min_length 5 exceeds max_length 3"),
    ("translate GERMAN --min_length -1", "min_length -1 is out of range"),
    ("translate GERMAN --max_length 0", "max_length 0 is out of range"),
    ("translate GERMAN --no_repeat_ngram -1", "no_repeat_ngram -1 is out of range"),
    ("translate GERMAN --repetition_penalty 0", "repetition_penalty 0.0 is out of range: choose from 1 to 100"),
    ("translate GERMAN --term 'dog\tcat'", r"term 'dog\tcat' contains a tab: give one term of the target"),
    ("translate GERMAN --term ' '", "term ' ' is blank: leave it out"),
    ("translate GERMAN --term ☃", "term '☃' has tokens not seen in training: '☃': choose another term"),
    ("translate GERMAN --term dog --beam 1", "terms and a glossary need beam search: give a beam of at least 2"),
    ("translate GERMAN --term dog --temperature 1", "terms and a glossary need beam search"),
    (
        "translate GERMAN x --engine regard --term 'old dog' --max_length 1",
        "tokens, but an answer has at most 1: give a lower",
    ),
    ("translate GERMAN --prefix ''", "prefix '' is blank: leave it out"),
    ("translate GERMAN --prefix ☃", "prefix '☃' has tokens not seen in training: '☃'"),
    ("translate GERMAN --words", "--words changes the drawing of --plot: give --plot, or leave out --words"),
    ("translate GERMAN --engine regard --precision int8", "precision int8 needs CTranslate2"),
    # contradictions
    ("translate GERMAN --input a.de --input a.de", "flag --input is given 2 times"),
    ("translate GERMAN x --input a.de", "text 'x' and --input exclude each other"),
    ("translate GERMAN x --prefix x --prefixes y", "--prefixes is for the lines of a file: give --prefix for one"),
    ("translate GERMAN x --lenient", "--lenient is for the lines of a file"),
    ("translate GERMAN x --plot no/such/a.png", "cannot write 'no/such/a.png'"),
    ("translate GERMAN x --temperature 1 --n_best 2", "n_best 2 ranks answers, but a temperature draws one"),
    ("translate GERMAN x --ensemble GERMAN", "--ensemble names a run twice, or RUN itself: name only other runs"),
    ("translate GERMAN x --ensemble nowhere", "nowhere"),
    ("translate GERMAN x --glossary nowhere.tsv", "file 'nowhere.tsv' does not exist: check its name"),
    ("translate GERMAN x --glossary blank.tsv", "has no terms: give lines with a source term, a tab"),
    ("translate GERMAN x --glossary half.tsv", "is 'Hund': give a source term, a tab and its translation"),
    ("translate GERMAN x --glossary three.tsv", "line 1 of "),
    ("translate GERMAN x --glossary no_source.tsv", "line 1 of "),
    ("translate GERMAN x --glossary twice.tsv", "translates 'Hund' by 'fox', but an earlier line by 'dog'"),
    ("translate GERMAN x --glossary unknown.tsv", "term '☃' has tokens not seen in training"),
    ("score GERMAN --batchsize 0", "batchsize 0 is out of range"),
    # trust
    ("trust GERMAN --data no.tsv --beam 0", "beam 0 is out of range"),
    ("trust GERMAN --data no.tsv --false_alarms nan", "false_alarms nan is out of range: choose above 0 and less"),
    ("trust GERMAN --data no.tsv --false_alarms 0.5", "false_alarms 0.5 is out of range"),
    ("trust GERMAN --data no.tsv --seed -1", "seed -1 is out of range"),
    ("trust GERMAN --data no.tsv --samples 49", "samples 49 is out of range: choose from 50 to 1000000"),
    ("trust GERMAN --data no.tsv --data more.tsv", "flag --data is given 2 times"),
    ("trust GERMAN --data no.tsv", "no.tsv"),
    ("translate GERMAN x --doubt --n_best 2", "--n_best"),
    ("translate GERMAN x --doubt_file d.txt", ".html"),
    ("translate GERMAN x --doubt_file d.tsv --no_doubt", "--doubt_file writes doubts, which --no_doubt rules out"),
    ("translate GERMAN x --doubt=False --doubt-file d.tsv", "--doubt_file writes doubts, which --no_doubt rules"),
    ("translate GERMAN x --doubt", "regard trust"),
    ("translate GERMAN --input a.tsv --doubt_file a.tsv", "is also an input"),
    ("trust GERMAN --lenient", "--lenient leaves out lines of --data: give --data"),
    ("trust GERMAN --data text/train.de text/train.en", "240 of 240 pairs are in the training text of the run"),
    ("trust GERMAN --data repeated.tsv", "too few different pairs to calibrate the doubt (1): give at least 50"),
    # test
    ("test GERMAN --samples 9", "--samples is for generated samples, but GERMAN has parallel text: to test"),
    ("test GERMAN --seed 3", "--seed is for generated samples, but GERMAN has parallel text: all pairs"),
    ("test GERMAN --plot", "draw one translation with `regard translate GERMAN TEXT --plot`"),
    ("test GERMAN --data no.tsv --beam 0", "beam 0 is out of range"),
    ("test GERMAN --data no.tsv --beam 1 --length_penalty nan", "length_penalty nan is out of range"),
    ("test GERMAN --data no.tsv --batchsize 0", "batchsize 0 is out of range"),
    ("test GERMAN --data a.tsv --output a.tsv", "is also an input, and would be lost"),
    ("test GERMAN --data a.tsv --json a.tsv", "is also an input, and would be lost"),
    ("test GERMAN --output .", "Is a directory"),
    ("test GERMAN --output out --json out", "--output and --json are both"),
    # align
    ("align GERMAN a.de --samples 3", "--samples is for choosing heads: give --links or --silver"),
    ("align GERMAN a.de --no-keep", "--no-keep is for choosing heads"),
    ("align GERMAN a.de --silver --by head", "--by is for aligning pairs, not for choosing heads"),
    ("align GERMAN a.de --silver --format json", "--format json is for aligning pairs"),
    ("align GERMAN a.de --plot no/such/a.png", "cannot write 'no/such/a.png'"),
    ("align GERMAN empty.tsv --plot a.png", "the input has no pairs, so there is nothing to draw"),
    ("align GERMAN - -", "SOURCE and TARGET are both standard input: give one of them as a file"),
    ("align GERMAN none.de a.en", "file 'none.de' does not exist: check its name"),
    ("align GERMAN a.de short.en", "'a.de' has 88 lines and 'short.en' has 1 line: line 2 has no counterpart"),
    ("align GERMAN a.de a.en --links a.en", "which is not a link"),
    ("align GERMAN a.de a.en --links short.en", "has links for 1 pair, but the text has 88"),
    ("align GERMAN --links a.links", "--links needs the sentences that the links refer to: give"),
    ("align GERMAN a.de --links a.links", "line 1 has no tab"),
    ("align GERMAN a.de a.en --links past.links", "pair 1: link 9-0 is beyond a source of 5 words"),
    ("align GERMAN a.de a.en --samples 0", "samples 0 is out of range"),
    ("align GERMAN a.de a.en --plot x.y", "plot 'x.y' has no known extension"),
    ("align GERMAN a.de a.en --samples 12 --links a.links", "too few pairs to choose heads (12)"),
    ("align GERMAN a.de a.en --links a.links --plot x.png", "--plot draws a pair and cannot be combined with choos"),
    ("align GERMAN a.de a.en --format json --plot x.png", "--plot draws a pair and cannot be combined with --form"),
    ("align GERMAN a.de a.en --symmetrise union", "--symmetrise needs two directions: give the opposite run"),
    ("align GERMAN a.de a.en --by head", "has no chosen alignment heads"),
    ("align GERMAN a.de a.en --reverse GERMAN", "must be another run of task translation, in the opposite direct"),
    ("align GERMAN a.de a.en --reverse DATES", "must be another run of task translation, in the opposite direct"),
]
TRAINING = [
    ("--criterion loss/news", "criterion loss/news names no text of --extra_valid"),
    (
        "--valid valid.tsv --extra_valid other=valid.tsv --criterion loss/news",
        "names no text of --extra_valid: other; give a text with --extra_valid news=SOURCE,TARGET",
    ),
    ("--vocab_size 4", "vocab_size 4 is out of range"),
    ("--r_drop -1 --dropout 0.1", "r_drop -1.0 is out of range: choose from 0 to 1000"),
    ("--r_drop 5 --dropout 0", "r_drop compares two passes with different dropout"),
    ("--valid mine.py", "mine.py' has no pairs"),
    ("--guide a.links --merge_dropout 0.1", "guide aligns tokens, which merge_dropout changes: leave out one"),
    ("--guide a.links --guide_weight -1", "guide_weight -1.0 is out of range: choose from 0 to 1000"),
    ("--criterion loss/", "criterion 'loss/' is unknown"),
    ("--criterion chrf", "criterion chrf has no effect without --valid: leave criterion out, or give"),
    ("--train empty.tsv", "empty.tsv' has no pairs: 0 pairs; give another text"),
    ("--valid empty.tsv", "empty.tsv' has no pairs"),
    ("--valid valid.tsv --extra_valid n=empty.tsv", "validation n text '"),
    (
        "--valid valid.tsv --extra_valid a=valid.tsv --extra_valid b=valid.tsv",
        "flag --extra_valid is given 2 times: give all its values at once",
    ),
    ("--sharded", "sharded splits the model between processes: start training with torchrun"),
    ("--merge_dropout 0.1 --tokenizer words", "which the tokenizer words does not"),
    ("--merge_dropout 0.1 --tokenizer unigram", "use it with --tokenizer bpe"),
    ("--tokenizer bp", "tokenizer 'bp' is unknown: choose bpe, "),
    ("--tokenizer a.model,b.model", "tokenizer has 2 files: give one file, or with --no-joint SOURCE,TARGET"),
    ("--tokenizer no.model", "no.model' does not exist"),
    ("--tokenizer a.model --symbols '<a>'", "symbols applies to a vocabulary that is learned"),
    ("--tokenizer a.model --normalize nfkc", "normalize applies to a vocabulary that is learned"),
    ("--normalize nfd", "normalization 'nfd' is unknown: choose nfkc, quotes"),
    ("--extra_valid a=b,c", "extra_valid adds to the validation text: also give --valid"),
    ("--valid valid.tsv --extra_valid a=b,c a=d", "extra_valid gives two texts the same name"),
    ("--valid valid.tsv --extra_valid a=b,c,d", "is not NAME=SOURCE,TARGET"),
    ("--patience 3", "patience 3 counts validations, but there is no validation text"),
    ("--guide_weight 0.05", "without --guide: leave guide_weight out, or give --guide"),
    ("--guide a.links --guide_weight 0", "guide_weight 0: leave guide out"),
    ("--weights 1", "weights 1.0 has no effect without a second text of --train: leave weights out"),
    ("--snapshots 4", "snapshots 4 has no effect without more --steps: leave snapshots out"),
    (
        "--valid valid.tsv --patience 1 --validate_every 1",
        "patience 1 has no effect without more --steps or a smaller --validate_every: leave patience out",
    ),
    ("--bleu_tokenize char", "bleu_tokenize char has no effect without --valid or --test"),
    ("--validate_every 1", "validate_every 1 has no effect without validation text"),
    ("--tied --positions concatenated", "tied True has no effect with concatenated positions"),
    ("--no_tied --attention concatenated", "tied False has no effect with concatenated positions"),
    ("--hub x --languages de en --valid valid.tsv", "has no effect with --hub: leave valid out, or leave out --hub"),
    ("--trust_code", "--trust_code has no effect without --resume: leave out --trust_code"),
    ("--trust-edited", "--trust_edited has no effect without --resume"),
    ("--train text/valid.de text/valid.de", "source and target are both '"),
    ("--train valid.tsv more.tsv", "training text has tabs in both files: give one file of"),
    ("--valid --seed 1", "flag --valid has no value: add a value, or leave the flag out"),
    ("--train text/valid.de", "0 pairs; left out: 24 without a partner; separate source and target in each"),
    ("--languages de en", "languages names columns of a data set: also give --hub"),
    ("--attention alibi --positions sinusoidal", "are both for the slot position"),
    ("--attention alibi --positions rotary", "are both for the slot position"),
    ("--attention cosine --score scaled_dot", "are both for the slot score"),
    ("--attention linear --score dot", "are both for the slot linear"),
]
OF_COUNTING = [
    ("importance --text BCCCBAABACCCA", "measured on inputs that the run draws: omit --text"),
    ("induction", "induction needs layers of self-attention, and counting has none"),
    ("rollout", "rollout needs two or more layers that attend to each other's states"),
    ("positions", "has no positions: train it with --pos_enc"),
    ("heads --layer 7", "7"),
    ("alignment --head 9", "head 9 is out of range"),
]


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(("line", "message"), PLAIN)
def test_bad_input(command: Command, line: str, message: str) -> None:
    check(command, [*shlex.split(line)], message)


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(("line", "message"), OF_A_RUN)
def test_bad_input_for_a_run(
    command: Command, trained: regard.AnswerRun, translator: regard.PairRun, line: str, message: str
) -> None:
    places = {"RUN": trained.folder, "DATES": translator.folder}
    check(command, [places.get(word, word) for word in shlex.split(line)], message)


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(("line", "message"), OF_A_TRANSLATOR)
def test_bad_input_for_a_translator(
    command: Command, german: regard.TranslationRun, translator: regard.PairRun, line: str, message: str
) -> None:
    places = {"GERMAN": german.folder, "DATES": translator.folder}
    words = [places.get(word, word) for word in shlex.split(line)]
    if line.startswith("trust") and "train.de" in line:
        words = ["trust", german.folder, "--data", *map(Path, german.task.config.train)]
    check(command, words, message.replace("GERMAN", str(german.folder)))
    assert not (german.folder / "alignment.json").exists()


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(("flags", "message"), TRAINING)
def test_training_checks_options_before_it_learns_a_vocabulary(command: Command, flags: str, message: str) -> None:
    train = [] if re.search("--(train|hub)", flags) else ["--train", "text/train.de", "text/train.en"]
    words: list[str | Path] = ["train", "translation", *train, *shlex.split(flags), "--steps", "2"]
    check(command, words, message)


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    savepath = tmp_path_factory.mktemp("counting")
    return regard.train("counting", steps=2, hidden=8, savepath=savepath, progress=False).folder


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(("words", "message"), OF_COUNTING)
def test_a_run_that_lacks_what_a_figure_shows(command: Command, counting: Path, words: str, message: str) -> None:
    kind, *flags = shlex.split(words)
    check(command, ["plot", kind, counting, "-o", "figure.pdf", *flags], message)


@pytest.mark.usefixtures("site")
def test_diverging_training_keeps_its_last_checkpoint(command: Command) -> None:
    words: list[str | Path] = ["train", "counting", "--lr", "1e30", "--steps", "50"]
    check(command, words, "lower --lr; the last checkpoint of the run", keeps=False)
