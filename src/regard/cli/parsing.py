"""Command-line parsing: flags and words from dataclasses, help in groups, and one-line errors."""

import ast
import contextlib
import dataclasses
import inspect
import io
import itertools
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro

from regard.arguments import Limits
from regard.cli.help import Flag, Page, ShownHelpError, wants_help as wants_help
from regard.cli.terminal import raw_output
from regard.errors import InputError, escape_controls, unknown_choice

Flags = TypeVar("Flags")

TRUE, FALSE = ("true", "1", "yes"), ("false", "0", "no")
UNLIMITED = 10**8  # Upper bound from which help states only the lower bound
NO_VALUE = re.compile(r"\{None\}\||(?<=\{)None,| \(default: None\)")  # what the parser says of it


@dataclass(frozen=True, kw_only=True)
class PageFlags:
    """Flags of all commands that serve a page."""

    port: int | None = None
    """Port of the page, 1 to 65535. Default: 8137, or a free port if 8137 is in use."""
    host: str = "127.0.0.1"
    """Address to listen on. By default only this machine can open the page. With another address, such as
    0.0.0.0, other machines need the printed URL, which contains a token: REGARD_TOKEN, or a random one."""
    browser: bool = True
    """Open the page in a browser."""


def read_command(
    flags: type[Flags],
    argv: list[str],
    usage: str,
    *,
    example: str = "counting",
    choices: Collection[str] = (),
    bare: str | None = None,
) -> tuple[list[str], Flags]:
    """Return the words and the flags of a command, from a dataclass whose docstring describes the command.

    `usage`: the command and its words, such as `regard translate RUN [TEXT]`; words in brackets are optional and
    may follow flags, a word with dots may be repeated. `example`: words for the message about a missing word.
    `choices`: possible first words. `bare`: a flag that may be given without a value, which then is empty.
    `--help` prints the flags and exits. Raises `InputError` for a missing or unknown word, and as `parse`.
    """
    regard, command, *names = usage.split()
    prog, description = f"{regard} {command}", " ".join(str(flags.__doc__).split())
    name = names[0] if names else ""
    what = name.removesuffix("...").lower().replace("_", " ")
    if choices:
        description += f" {name}: {', '.join(choices)}."
    if wants_help(argv):
        parse(flags(), argv, prog=usage, description=description)
    # A bare flag gets an empty value, because the parser refuses flags without a value.
    following = itertools.pairwise([*argv, "-"])
    argv = [f"{bare}=" if word == bare and after.startswith("-") else word for word, after in following]
    words: list[str] = []
    if name and name[0] != "[":
        word, argv = first_word(argv, what=what, prog=prog, example=example)
        words.append(word)
    if choices and word not in choices:
        raise unknown_choice(what, word, choices)
    if name.endswith("..."):
        count = next((index for index, word in enumerate(argv) if word.startswith("-")), len(argv))
        words, argv = [*words, *argv[:count]], argv[count:]
        if "" in words:
            raise InputError(f"a name of a {what} is empty: name the {what}s first, as in `{prog} {example}`")
    for optional in names:
        if optional[0] == "[":
            text, argv = take_text(argv, flags)
            words += [] if text is None else [text]
    try:
        return words, parse(flags(), argv, prog=" ".join([prog, *words[:1]]), description=description)
    except InputError as error:
        if what != "run" or not str(error).startswith("Unrecognized options"):
            raise
        raise _explained(error, words[0], argv, {option for option, *_ in _fields(flags())}) from None


def parse(
    default: Flags,
    argv: list[str],
    *,
    prog: str,
    description: str,
    groups: Mapping[str, Sequence[str]] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> Flags:
    """Parse `argv` into a dataclass of flags; the instance `default` has the default values. Nested dataclasses
    are flattened.

    `_` and `-` are equivalent in flag names. Values are given as `--flag=value` or `--flag value`, booleans as
    `--flag`, `--no-flag`, `--flag=True` or `--flag=False`. `--help` prints the first flags and exits, and
    `--help-all` prints all flags, under the titles in `groups` and with the descriptions of `defaults`. Raises
    `InputError` with one line for invalid flags.
    """
    if wants_help(argv):
        page = _describe(default, prog, description, groups, defaults or {})
        raw_output().write(page.text(argv))
        raise ShownHelpError(page)
    _check_words(default, argv)
    # Rewrite `--flag=True` as `--flag` and `--flag=False` as `--no-flag`, for boolean flags.
    booleans, plain = _names_of(type(default), bool), list[str]()
    for word in argv:
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if flag.startswith("--") and equals and name in booleans:
            if value.lower() not in TRUE + FALSE:
                raise InputError(f"{flag} {value!r} is not a boolean: give {flag}=True or {flag}=False")
            word = f"--{name}" if value.lower() in TRUE else f"--no-{name}"
        plain.append(word)
    stderr, stdout = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(stdout):
            return _read(default, plain, prog, description)
    except SystemExit:
        raise InputError(_one_line(stderr.getvalue())) from None


def _read(default: Flags, argv: list[str], prog: str, description: str) -> Flags:
    return tyro.cli(
        type(default),
        default=default,
        args=argv,
        prog=escape_controls(prog),
        description=description,
        use_underscores=True,
        config=(tyro.conf.OmitArgPrefixes,),
    )


def _describe(
    default: Any, prog: str, description: str, groups: Mapping[str, Sequence[str]] | None, defaults: Mapping[str, str]
) -> Page:
    """Return the help of the flags under the titles of `groups`. `defaults`: descriptions of defaults that are not
    the value of the flag."""
    fields = {name: (title, hint, text, value) for name, title, hint, text, value in _fields(default)}
    places = groups or {title: [name for name in fields if fields[name][0] == title] for title, *_ in fields.values()}
    flags = []
    for title, name in ((title, name) for title, names in places.items() for name in names if name in fields):
        _, hint, text, value = fields[name]
        value = defaults.get(name, value)
        shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        empty = value is None or value is False or shown == ""
        text = text if empty else f"{text} (default: {escape_controls(shown)})"
        flags.append(Flag(title, name, _forms(name, hint, value), text.replace(") (default", "; default")))
    return Page(prog, description, flags)


def _forms(name: str, hint: Any, value: Any) -> str:
    """Return how a flag is written, such as `--steps INT`."""
    markers = getattr(hint, "__metadata__", ())
    argument: Any = next((marker for marker in markers if hasattr(marker, "aliases")), None)
    names = [f"--{argument.name or name}", *(argument.aliases or ())] if argument is not None else [f"--{name}"]
    inner = _plain(hint)
    if inner is bool:
        return f"--{name}, --no_{name}" if value else f"--{name}"
    if get_origin(inner) is Literal:
        return f"{', '.join(names)} {{{','.join(map(str, get_args(inner)))}}}"
    parts = [part for part in get_args(inner) if part is not Ellipsis] if get_origin(inner) is tuple else [inner]
    values = " ".join(_plain(part).__name__.upper() for part in parts)
    repeated = Ellipsis in get_args(inner) and tyro.conf.UseAppendAction not in markers
    return f"{', '.join(names)} {values.replace('POSIXPATH', 'PATH')}{' ...' if repeated else ''}"


def _plain(hint: Any) -> Any:
    """Return a type without its annotations and without None."""
    while get_origin(hint) in (Annotated, Union, UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    return hint


def _fields(default: Any, title: str = "") -> Iterator[tuple[str, str, Any, str, Any]]:
    """Yield the name, the title of the group, the type, the explanation and the default of each flag."""
    hints, texts = (
        get_type_hints(type(default), include_extras=True),
        _docstrings(getattr(default, "described_by", type(default))),
    )
    for option in dataclasses.fields(default):
        value = getattr(default, option.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from _fields(value, option.name)
            continue
        hint = hints[option.name]
        given = (marker.help for marker in getattr(hint, "__metadata__", ()) if hasattr(marker, "help"))
        text = next(filter(None, given), None) or texts.get(option.name, "")
        if (limits := _limits_of(hint)) is not None:
            words = f"{limits.low:,} or more" if limits.high >= UNLIMITED and not limits.excluded else limits.words
            text = f"{text} ({words})"
        yield option.name, title, hint, text, value


def _docstrings(flags: type) -> dict[str, str]:
    """Return the docstring after each field of a dataclass, as one paragraph."""
    texts: dict[str, str] = {}
    for base in reversed(flags.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            body: Any = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        except (OSError, TypeError):  # a class that was made by a function has no source
            continue
        for member, after in itertools.pairwise(body.body):
            match member, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = " ".join(text.split())
    return texts


def _limits_of(hint: Any) -> Limits | None:
    """Return the range in an annotation, also in that of an optional value."""
    inner = getattr(hint, "__metadata__", ()) if get_origin(hint) is Annotated else ()
    found = (limits for limits in inner if isinstance(limits, Limits))
    nested = (limits for part in get_args(hint) if (limits := _limits_of(part)) is not None)
    return next(itertools.chain(found, nested), None)


def check_needed(flags: Any, needed: Mapping[str, str]) -> None:
    """Raise `InputError` for a flag that differs from its default without the other flag that it needs."""
    default = type(flags)()
    for name, other in needed.items():
        if getattr(flags, name) != getattr(default, name) and getattr(flags, other) == getattr(default, other):
            raise InputError(f"--{name} has no effect without --{other}: leave out --{name}, or give --{other}")


def _check_words(default: object, argv: list[str]) -> None:
    """Raise `InputError` for empty paths, which `Path` reads as the current directory, and for files and lists
    without a value or given twice, of which the parser reads the last."""
    paths = _names_of(type(default), Path, special=True)
    lists = _names_of(type(default), Path) | _names_of(type(default), tuple)
    given = [word.removeprefix("--").partition("=")[0].replace("-", "_") for word in argv if word[:2] == "--"]
    for name in paths | lists:
        words, _ = take_flags(argv, [name])
        forms = (f"--{name}", f"--{name.replace('_', '-')}")
        if name in paths and any(word in ("", *(f"{form}=" for form in forms)) for word in words):
            raise InputError(f"flag --{name} has an empty path: name a file or folder, or leave the flag out")
        if name in lists and given.count(name) > 1:
            raise InputError(f"flag --{name} is given {given.count(name)} times: give all its values at once")
        if name in lists and words in ([form] for form in forms):
            raise InputError(f"flag --{name} has no value: add a value, or leave the flag out")


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


def _one_line(box: str) -> str:
    """Convert the parser's error message to one line, without its title and borders."""
    lines = [line.strip("│| ") for line in box.strip().splitlines()]
    framed = lines[0].startswith(("╭", "+"))
    body = "\n".join(line for line in lines if not line.startswith(("╭", "╰", "+")))
    sections = [" ".join(part.split()).rstrip(".") for part in re.split(r"^[-─]+$", body, flags=re.MULTILINE)]
    error, *others = sections if framed else sections[1:]  # without borders, the title is a section
    flag, _, reason = error.removeprefix("Error parsing ").partition(": ")
    value = re.search(r"from \[(.*?)\]\.|base 10: (.*)$|to float: (.*)$", reason)
    about = next((part for part in others if part.startswith("Argument helptext")), "")
    kind = "a whole number" if "INT" in about.split() or "|INT" in about else "a number" if "FLOAT" in about else ""
    if value is not None and kind:
        return f"{flag} {next(filter(None, value.groups()))} is not {kind}: give {kind}"
    others = [re.sub(r"^([PA][a-z -]+: --\S+) .*", r"\1", part) for part in others if part != about]
    text = "; ".join([error, *others])
    return NO_VALUE.sub("", text)


def first_word(argv: list[str], *, what: str, prog: str, example: str = "counting") -> tuple[str, list[str]]:
    """Split `argv` into its first word, the name of a `what`, and the remaining words."""
    if not argv or argv[0] == "" or argv[0].startswith("-"):
        came = f"{'flag' if argv[0] else 'name'} {argv[0]!r} comes first" if argv else "there is no name"
        raise InputError(f"{came}: name the {what} first, as in `{prog} {example}`")
    return argv[0], argv[1:]


def take_flag(argv: list[str], flag: str) -> tuple[list[str], list[str]]:
    """Split `argv` into the values of `flag` and the remaining words, before parsing."""
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
    """Split `argv` into the flags in `names` with their values, and the remaining words, before parsing."""
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
        is_value = not is_value and word.startswith("-") and word != "-" and not switch
    return None, argv


def contradiction(folder: str, name: str, trained: Mapping[str, Any], words: Sequence[str]) -> InputError | None:
    """Return an error for the first flag in `words` that differs from the flags `trained` of a run."""
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
