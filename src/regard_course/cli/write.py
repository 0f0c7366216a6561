"""`regard write`: puzzles for attention as a program."""

import sys
from dataclasses import dataclass
from pathlib import Path

from regard.cli.parsing import PageFlags, check_needed, parse, wants_help
from regard.errors import InputError, check_range
from regard.io import write_new
from regard.progress import progress_bar
from regard_course.check import choose_exercises
from regard_course.puzzles.puzzle import PUZZLES, Puzzle, find_puzzle
from regard_course.puzzles.verdict import check_file
from regard_course.sandbox import ForkServer

PROG = "regard write"
USAGE = f"{PROG} [PUZZLE | FILE.py | FOLDER]"
DESCRIPTION = (
    "Write attention as a program. Without an argument, the command lists the puzzles. PUZZLE writes PUZZLE.py "
    "to start from. FILE.py is checked for all inputs: a wrong program is compared with known mistakes, a right "
    "one is compiled to a model. FOLDER is a found model, opened in the explorer. The code runs in a separate "
    "process. Exit status: 0 for a right program, 1 otherwise."
)


@dataclass(frozen=True, kw_only=True)
class WriteFlags(PageFlags):
    """Flags of the command."""

    puzzle: str | None = None
    """Puzzle of FILE.py, if the file has another name."""
    page: bool = False
    """Open a page with the selectors of FILE.py as heatmaps, which changes when you save the file."""
    train: bool = False
    """Also train a model on the task, and match its heads with the selectors. Takes up to a minute."""
    hide: Path | None = None
    """For teachers: write the model of FILE.py to this folder, without the program, and its key beside it."""
    score: Path | None = None
    """For teachers: compare the claims in FILE.py with this key."""
    alphabet: str = "abc"
    """Letters of the texts, for --hide with a program of your own."""
    longest: int = 5
    """Largest number of letters of a text, for --hide with a program of your own."""
    causal: bool = False
    """Each step sees itself and earlier steps only, for --hide with a program of your own."""
    seed: int = 0
    """Seed of the training, and of the order of heads with --hide."""


def run_write(argv: list[str]) -> None:
    """List the puzzles, write a stub, check a program, or open a page."""
    if wants_help(argv) or not argv:
        if argv:
            parse(WriteFlags(), argv, prog=USAGE, description=DESCRIPTION)
        width = max(map(len, PUZZLES))
        for puzzle in PUZZLES.values():
            sys.stdout.write(f"{puzzle.number:2}  {puzzle.name:{width}}  {puzzle.title}\n")
        sys.stdout.write(f"\n{PROG} first    writes first.py, the file to start from\n")
        return
    if argv[0].startswith("-"):
        raise InputError(f"the first word must be a puzzle, a file or a folder, as in {PROG} previous.py")
    word, flags = argv[0], parse(WriteFlags(), argv[1:], prog=PROG, description=DESCRIPTION)
    check_needed(flags, dict.fromkeys(("alphabet", "longest", "causal"), "hide"))
    check_range("seed", flags.seed, 0, 2**32 - 1)
    if Path(word).is_dir():
        _show_found(Path(word), flags)
    elif not word.endswith(".py"):
        puzzle = find_puzzle(word)
        [path] = write_new({Path(f"{word}.py"): puzzle.stub.encode()})
        sys.stdout.write(f"{puzzle.sentences}\nWrote {path}; then: {PROG} {path} --page\n")
    else:
        choose_exercises(None)  # raises an error on a system that cannot limit processes
        with ForkServer() as server:
            _run_file(Path(word), flags, server)


def _run_file(path: Path, flags: WriteFlags, server: ForkServer) -> None:
    if flags.score is not None:
        from regard_course.puzzles.found import score_claims

        sys.stdout.write(f"{score_claims(path, flags.score, server)}\n")
    elif flags.hide is not None:
        from regard_course.puzzles.found import hide_program, own_puzzle

        own = flags.puzzle is None and path.stem not in PUZZLES
        puzzle = own_puzzle(flags.alphabet, flags.longest, causal=flags.causal) if own else _puzzle_of(path, flags)
        paths = hide_program(path, puzzle, flags.hide, server, seed=flags.seed)
        sys.stdout.write(f"Wrote {flags.hide} for learners, and the key {paths[-1]}, which you keep\n")
    elif flags.page:
        from regard_course.puzzles.writing_page import WritingPage, write  # needs the extra serve

        page = WritingPage(path, _puzzle_of(path, flags), server)
        write(page, port=flags.port, host=flags.host, browser=flags.browser)
        raise KeyboardInterrupt  # the server returns only after Ctrl-C
    else:
        _check(path, _puzzle_of(path, flags), flags, server)


def _puzzle_of(path: Path, flags: WriteFlags) -> Puzzle:
    if flags.puzzle is None and path.stem not in PUZZLES:
        raise InputError(f"{path.name!r} is not the name of a puzzle: add --puzzle NAME ({', '.join(PUZZLES)})")
    return find_puzzle(flags.puzzle or path.stem)


def _check(path: Path, puzzle: Puzzle, flags: WriteFlags, server: ForkServer) -> None:
    program, report = check_file(path, puzzle, server)
    sys.stdout.write(f"{report}\n")
    if not report.right:
        sys.exit(1)
    from regard_course.puzzles.models import STEPS, compile_puzzle, match_heads, show_place, train_beside

    compiled = compile_puzzle(puzzle, program)
    right, total = compiled.count_right(compiled.compiled.model), len(puzzle.inputs)
    sys.stdout.write(f"compiled to a model, which is right for {right} of {total} inputs\n")
    for place, name in compiled.heads.items():
        sys.stdout.write(f"  {name}: {show_place(place)}\n")
    if not flags.train:
        sys.stdout.write("Does a trained model find the same? Add --train\n")
        return
    with progress_bar(puzzle.name, 0, STEPS, show=True) as show:
        trained = train_beside(compiled, seed=flags.seed, progress=show)
    sys.stdout.write(f"trained model: right for {compiled.count_right(trained)} of {total} inputs\n")
    for match in match_heads(compiled, trained):
        sys.stdout.write(f"  {match}\n")


def _show_found(folder: Path, flags: WriteFlags) -> None:
    from regard.server.serve import show
    from regard_course.puzzles.found import load_found

    run = load_found(folder)
    if run.task.answers == "numbers":
        values = vars(run.task)["values"]
        classes = ", ".join(f"{number} {value or 'no answer'}" for number, value in enumerate(values))
        sys.stdout.write(f"The answers are numbers of classes: {classes}\n")
    show(run, port=flags.port, host=flags.host, browser=flags.browser)
    raise KeyboardInterrupt  # the server returns only after Ctrl-C
