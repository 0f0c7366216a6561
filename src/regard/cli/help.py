"""Help of commands: the first flags of each, and pages that are shown without importing PyTorch.

help.json has the page of every command and of every task and model of `regard train`, made from the dataclasses of
flags by `make build-help` (docs/help_pages.py). Other pages, as of a model of your own, are made when asked for.
"""

import json
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

from regard.errors import escape_controls

HELP, HELP_ALL = ("-h", "--help"), "--help-all"
FIRST = {
    "train": "steps model savepath resume overwrite train valid text preset hidden heads layers attention lr tokenizer "
    "seed max_len vocab_size",
    "translate": "beam n_best temperature scores input align plot engine prefix glossary doubt savepath",
    "look": "text target generate image compare_with examples layers heads plot json download",
    "plot": "output width text image examples layer head samples seed download savepath",
    "explain": "input layer head output key why depth seed json savepath",
    "circuit": "method scores threshold clean corrupted answers pairs write json seed savepath",
    "align": "links keep samples by unit reverse symmetrise format plot savepath",
    "write": "puzzle page train hide score seed port browser",
}
"""Flags that `--help` shows, for commands with more than `MOST`: the first `MOST` of these that the task has."""
MOST = 12
WIDEST, COLUMN = 100, 22  # characters of a line, and where the explanation of a flag begins
DEPENDING = {"--model", "--preset", "--attention", "--from", "--start_from"}  # flags that change other flags
PAGES = Path(__file__).with_name("help.json")


class Flag(NamedTuple):
    """A flag in the help of a command."""

    title: str  # of its group
    name: str
    forms: str  # how it is written, such as --steps INT
    text: str


class Page(NamedTuple):
    """The help of a command."""

    usage: str
    description: str
    flags: list[Flag]

    def text(self, argv: list[str]) -> str:
        """Return the page for the width of the terminal, with the first flags, or with every flag if `argv` asks."""
        every = any(word.replace("_", "-") == HELP_ALL for word in argv)
        width = min(shutil.get_terminal_size().columns, WIDEST)
        bold = "\033[1m{}\033[0m" if sys.__stdout__ is not None and sys.__stdout__.isatty() else "{}"
        known = {flag.name: flag for flag in self.flags}
        first = [name for name in FIRST.get(self.usage.split()[1], "").split() if name in known][:MOST]
        shown = self.flags if every or not first or len(known) <= MOST else [known[name] for name in first]
        lines = [f"usage: {escape_controls(self.usage)} [flags]", "", *textwrap.wrap(self.description, width)]
        for title in dict.fromkeys(flag.title for flag in self.flags if flag in shown):
            lines += ["", bold.format(f"{title or 'flags'}:")]
            for flag in (flag for flag in self.flags if flag in shown and flag.title == title):
                text = textwrap.wrap(flag.text, width - COLUMN - 2) or [""]
                beside = len(flag.forms) < COLUMN
                lines += [] if beside else [f"  {bold.format(flag.forms)}"]
                label = bold.format(flag.forms) + " " * (COLUMN - len(flag.forms)) if beside else " " * COLUMN
                lines += [f"  {label}{text[0]}".rstrip(), *(f"{'':{COLUMN + 2}}{line}" for line in text[1:])]
        count = f"{len(known)} flag{'s' * (len(known) != 1)}"
        rest = f"{self.usage} {HELP_ALL} shows all {count}." if len(shown) < len(known) else f"These are all {count}."
        return "\n".join([*lines, "", *textwrap.wrap(escape_controls(rest), width, break_on_hyphens=False), ""])


class ShownHelpError(SystemExit):
    """The end of a command that has printed its help."""

    def __init__(self, page: Page) -> None:
        super().__init__(0)
        self.page = page


def wants_help(argv: list[str]) -> bool:
    return any(word.replace("_", "-") in (*HELP, HELP_ALL) for word in argv)


def stored_page(command: str, argv: list[str]) -> Page | None:
    """Return the stored page for a command line; None if the page depends on files, runs or code that it names."""
    words = re.sub(r"(--model|--preset)=", r"\1 ", " ".join(word for word in argv if not wants_help([word])))
    pages = json.loads(PAGES.read_text(encoding="utf-8"))
    key = max((key for key in pages["pages"] if f"{command} {words} ".startswith(f"{key} ")), key=len)
    others = f"{command} {words}".removeprefix(key).split()
    if command == "train" and others and (key == command or DEPENDING & {*others}):
        return None
    if command == "test" and any(Path(word).exists() for word in others):
        return None
    usage, description, flags = pages["pages"][key]
    return Page(usage, description, [Flag(*pages["flags"][number]) for number in flags])
