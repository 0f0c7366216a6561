"""Command-line parsing: flags from dataclasses, the flag spellings of the primer, and one-line errors."""

import contextlib
import dataclasses
import io
import itertools
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import tyro
from tyro import _strings

from regard.cli.terminal import raw_output
from regard.errors import InputError, escape_controls

Flags = TypeVar("Flags")

WIDEST = 100
"""Maximum line width of a command's description."""

ANSI = re.compile(r"\x1b\[[\d;]*m")
TRUE, FALSE = ("true", "1", "yes"), ("false", "0", "no")


def parse(default: Flags, argv: list[str], *, prog: str, description: str) -> Flags:
    """Parse `argv` into a dataclass of flags; the instance `default` has the default values. Nested dataclasses
    are flattened.

    `_` and `-` are equivalent in flag names. Values are given as `--flag=value` or `--flag value`, booleans as
    `--flag`, `--no-flag`, `--flag=True` or `--flag=False`. `--help` prints the flags and exits. Raises
    `InputError` with one line for invalid flags.
    """
    _refuse_empty_paths(default, argv)
    _refuse_repeated(default, argv)
    helping = wants_help(argv)
    if helping:  # help is printed unescaped for its colors, so escape the values in it
        default = _escaped(default)
    stderr, stdout = io.StringIO(), _Screen(colours=helping)
    try:
        with contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(stdout):
            return tyro.cli(
                type(default),
                default=default,
                args=_plain_booleans(argv, _names_of(type(default), bool)),
                prog=escape_controls(prog),
                description=textwrap.fill(description, min(shutil.get_terminal_size().columns, WIDEST)),
                use_underscores=True,
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as stop:
        if not stop.code:
            usage, newline, rest = stdout.getvalue().partition("\n")
            folded = _folded(usage, shutil.get_terminal_size().columns) if helping else usage
            (raw_output() if helping else sys.stdout).write(f"{folded}{newline}{rest}")
            raise
        raise InputError(_one_line(stderr.getvalue())) from None


def check_needed(flags: Any, needed: Mapping[str, str]) -> None:
    """Raise `InputError` for a flag that differs from its default without the other flag that it needs."""
    default = type(flags)()
    for name, other in needed.items():
        if getattr(flags, name) != getattr(default, name) and getattr(flags, other) == getattr(default, other):
            raise InputError(f"--{name} has no effect without --{other}: leave out --{name}, or give --{other}")


def _escaped(value: Any) -> Any:
    """Return a default value in which all text and paths, also in nested dataclasses, are escaped by
    `escape_controls`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        return dataclasses.replace(value, **{name: _escaped(getattr(value, name)) for name in names})
    if isinstance(value, tuple):
        return tuple(map(_escaped, value))
    return type(value)(escape_controls(str(value))) if isinstance(value, str | Path) else value


def _refuse_empty_paths(default: object, argv: list[str]) -> None:
    """Raise `InputError` for an empty path, which `Path` would read as the current directory."""
    for name in _names_of(type(default), Path, special=True):
        words, _ = take_flags(argv, [name])
        if any(word in ("", f"--{name}=", f"--{name.replace('_', '-')}=") for word in words):
            raise InputError(f"flag --{name} has an empty path: name a file or folder, or leave the flag out")


def _refuse_repeated(default: object, argv: list[str]) -> None:
    """Raise `InputError` for files and lists without a value or given twice: the parser reads the last ones."""
    words = [word.removeprefix("--").partition("=")[0].replace("-", "_") for word in argv if word[:2] == "--"]
    for name in _names_of(type(default), Path) | _names_of(type(default), tuple):
        if words.count(name) > 1:
            raise InputError(f"flag --{name} is given {words.count(name)} times: give all its values at once")
        if take_flags(argv, [name])[0] in ([f"--{name}"], [f"--{name.replace('_', '-')}"]):
            raise InputError(f"flag --{name} has no value: add a value, or leave the flag out")


class _Screen(io.StringIO):
    """A buffer that supports colors if the standard output does."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    encoding = property(lambda self: getattr(sys.__stdout__, "encoding", None) or "utf-8")

    def isatty(self) -> bool:
        return self._colours and sys.__stdout__ is not None and sys.__stdout__.isatty()


def _folded(usage: str, width: int) -> str:
    """Wrap a usage line to `width` characters, with breaks between options."""
    lines = [""]
    for part in re.split(r" (?=\[)", usage):
        if len(ANSI.sub("", f"{lines[-1]} {part}")) > width and lines[-1]:
            lines.append(f"   {part}")
        else:
            lines[-1] = f"{lines[-1]} {part}" if lines[-1] else part
    return "\n".join(lines)


def _unfolded(helptext: str) -> str:
    return re.sub(r"(?<!\n)\n {4,}(?=\S)", " ", helptext)


# The function of tyro keeps the line breaks of indented field docstrings.
_strings.remove_single_line_breaks = _unfolded


def _names_of(flags: type, kind: type, *, special: bool = False) -> set[str]:
    """Return the names of all fields whose type is `kind`, optional `kind` or a collection of `kind`, also in
    nested dataclasses. special: also fields with a setting of the parser, such as flags that may be repeated."""
    names: set[str] = set()
    for name, hint in get_type_hints(flags, include_extras=not special).items():
        if kind in (hint, get_origin(hint), *get_args(hint)):
            names.add(name)
        elif dataclasses.is_dataclass(hint):
            names |= _names_of(hint, kind, special=special)  # type: ignore[arg-type]
    return names


def _plain_booleans(argv: list[str], booleans: set[str]) -> list[str]:
    """Rewrite `--flag=True` as `--flag` and `--flag=False` as `--no-flag`, for boolean flags."""
    plain = []
    for word in argv:
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if flag.startswith("--") and equals and name in booleans:
            if value.lower() not in TRUE + FALSE:
                raise InputError(f"{flag} {value!r} is not a boolean: give {flag}=True or {flag}=False")
            word = f"--{name}" if value.lower() in TRUE else f"--no-{name}"
        plain.append(word)
    return plain


def _one_line(box: str) -> str:
    """Convert the parser's boxed error message to one line without its title."""
    lines = [line.strip("│| ") for line in box.splitlines()]
    body = "\n".join(line for line in lines if not line.startswith(("╭", "╰", "+")))
    sections = re.split(r"^[-─]+$", body, flags=re.MULTILINE)
    return "; ".join(" ".join(section.split()).rstrip(".") for section in sections)


def first_word(argv: list[str], *, what: str, prog: str, example: str = "counting") -> tuple[str, list[str]]:
    """Split `argv` into its first word, such as the name of a task or run, and the remaining words. Raises
    `InputError` if the first word is missing or is a flag.

    >>> first_word(["dates", "--beam", "5"], what="run", prog="regard translate")
    ('dates', ['--beam', '5'])
    """
    if not argv or argv[0] == "" or argv[0].startswith("-"):
        came = f"{'flag' if argv[0] else 'name'} {argv[0]!r} comes first" if argv else "there is no name"
        raise InputError(f"{came}: name the {what} first, as in `{prog} {example}`")
    return argv[0], argv[1:]


def parse_of_run(
    default: Flags, argv: list[str], *, prog: str, description: str, example: str = "counting", what: str = "run"
) -> tuple[str, Flags]:
    """Parse `argv` as a name, by default of a run, followed by flags; see `first_word` and `parse`."""
    if wants_help(argv[:1]):
        parse(default, argv, prog=f"{prog} {what.upper()}", description=description)
    name, argv = first_word(argv, what=what, prog=prog, example=example)
    try:
        return name, parse(default, argv, prog=f"{prog} {name}", description=description)
    except InputError as error:
        if what != "run" or not str(error).startswith("Unrecognized options"):
            raise
        own = {field.name for field in dataclasses.fields(default)}  # type: ignore[arg-type]
        raise _explained(error, name, argv, own) from None


def parse_of_runs(
    default: Flags, argv: list[str], *, prog: str, description: str, example: str
) -> tuple[list[str], Flags]:
    """Parse `argv` as the names of one or more runs, which come first, followed by flags."""
    if wants_help(argv[:1]):
        parse(default, argv, prog=f"{prog} RUN...", description=description)
    count = next((index for index, word in enumerate(argv) if word.startswith("-")), len(argv))
    if count < 2:
        name, flags = parse_of_run(default, argv, prog=prog, description=description, example=example)
        return [name], flags
    if "" in argv[:count]:
        raise InputError(f"a name of a run is empty: name the runs first, as in `{prog} {example}`")
    return argv[:count], parse(default, argv[count:], prog=f"{prog} RUN...", description=description)


def take_flag(argv: list[str], flag: str) -> tuple[list[str], list[str]]:
    """Split `argv` into the values of `flag` and the remaining words, before parsing.

    Raises `InputError` if the flag has no value.

    >>> take_flag(["--vary", "heads=1,2", "--seeds=3"], "--vary")
    (['heads=1,2'], ['--seeds=3'])
    """
    values, left = [], []
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if name.replace("-", "_") != flag.replace("-", "_"):
            left.append(word)
        elif equals:
            values.append(value)
        else:
            following = next(words, None)
            if following is None:
                raise InputError(f"flag {flag} has no value: add a value")
            values.append(following)
    return values, left


def take_flags(argv: list[str], names: Collection[str]) -> tuple[list[str], list[str]]:
    """Split `argv` into the flags in `names` with their values, and the remaining words, before parsing.

    >>> take_flags(["--heads", "2", "--seed", "1"], {"heads"})
    (['--heads', '2'], ['--seed', '1'])
    """
    taken: list[str] = []
    left: list[str] = []
    into = left
    for word in argv:
        if word.startswith("--"):
            name = word.removeprefix("--").partition("=")[0].replace("-", "_")
            into = taken if name in names or name.removeprefix("no_") in names else left
        into.append(word)
    return taken, left


def take_text(argv: list[str], flags: type) -> tuple[str | None, list[str]]:
    """Split `argv` into its first positional word, or None, and the remaining words, before parsing."""
    booleans = _names_of(flags, bool)
    is_value = False
    for index, word in enumerate(argv):
        name = word.removeprefix("--").replace("-", "_")
        if not is_value and (word == "-" or not word.startswith("-")):
            return word, [*argv[:index], *argv[index + 1 :]]
        switch = "=" in word or {name, name.removeprefix("no_")} & booleans
        is_value = not is_value and word.startswith("--") and not switch
    return None, argv


def wants_help(argv: list[str]) -> bool:
    return any(word in ("-h", "--help") for word in argv)


def with_empty_value(argv: list[str], flag: str) -> list[str]:
    """Add an empty value to `flag` if it has no value, because the parser refuses flags without a value.

    >>> with_empty_value(["--plot", "--seed", "1"], "--plot")
    ['--plot=', '--seed', '1']
    """
    alone = [
        word == flag and (index + 1 == len(argv) or argv[index + 1].startswith("-"))
        for index, word in enumerate(argv)
    ]
    return [f"{flag}=" if is_alone else word for word, is_alone in zip(argv, alone, strict=True)]


def contradiction(folder: str, name: str, trained: Mapping[str, Any], words: Sequence[str]) -> InputError | None:
    """Return an error for the first flag in `words` that differs from the run's flags `trained`, or None if all
    flags agree."""
    for flag, value in _flag_values(words):
        if flag in trained and not _same(trained[flag], value):
            return InputError(
                f"run {folder!r} was trained with {flag} {trained[flag]}, not {value}: train another run with "
                f"{value}, as in `{' '.join(['regard train', name, *words])} --savepath other`, and use that run"
            )
    return None


def _explained(error: InputError, run: str, argv: list[str], own: set[str]) -> InputError:
    """Return a more specific error if `argv` has training flags, which the command does not accept.

    `own` contains the command's flags. Returns `error` unchanged if `argv` has no training flags or if the run
    cannot be read.
    """
    from regard.runs.loading import SAVEPATH  # imports PyTorch
    from regard.training.run_folder import find_run

    folders, _ = take_flag(argv, "--savepath")
    with contextlib.suppress(InputError):
        folder = find_run(run, Path(folders[-1] if folders else SAVEPATH))
        config = folder.read_config()
        words, _ = take_flags(argv, set(config.flags()) - own)
        if words:
            agree = InputError(f"{' '.join(words)} is fixed by the run: leave it out")
            return contradiction(str(folder.path), config.name, config.flags(), words) or agree
    return error


def _flag_values(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each flag with its values, joined by spaces."""
    begins = [place for place, word in enumerate(words) if word.startswith("--")]
    for begin, end in itertools.pairwise([*begins, len(words)]):
        flag, equals, value = words[begin].removeprefix("--").partition("=")
        flag = flag.replace("-", "_")
        if equals or end > begin + 1:
            yield flag, " ".join(filter(None, [value, *words[begin + 1 : end]]))
        else:
            yield flag.removeprefix("no_"), str(not flag.startswith("no_"))


def _same(trained: Any, text: str) -> bool:
    trained = " ".join(map(str, trained)) if isinstance(trained, tuple) else trained
    try:
        return float(trained) == float(text)
    except (TypeError, ValueError):
        return str(trained).lower() == text.lower()
