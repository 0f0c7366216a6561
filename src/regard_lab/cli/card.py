"""`regard card MECHANISM`: evidence about an attention mechanism, beside softmax."""

import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group

from regard.cli.compare import MachineFlags, make_backend
from regard.cli.parsing import read_command
from regard.cli.terminal import print_table, resumable
from regard.errors import InputError
from regard.io.writing import check_writable, write_json
from regard_lab.cards.card import SAVEPATH, SEEDS, measure_cards
from regard_lab.cards.card_page import (
    all_claims,
    card_json,
    card_tables,
    claim_table,
    overview_table,
    write_markdown,
    write_page,
)
from regard_lab.cards.mechanisms import MECHANISMS

PIPE_WIDTH = 160
"""Width of the tables in characters if they are not printed to a terminal."""


@dataclass(frozen=True, kw_only=True)
class EvidenceFlags:
    """Flags of the cards."""

    seeds: int = SEEDS
    """Number of seeds: 0, 1, and so on."""
    steps: int | None = None
    """Number of training steps of every probe, for a quick look. Default: that of each probe, 500 to 1000."""
    all: bool = False
    """Measure all mechanisms of a fixed list, and print one table. With 10 seeds, this takes an estimated 4 to 5
    hours of CPU time."""
    json: Path | None = None
    """Write all numbers to this JSON file."""
    html: Path | None = None
    """Write a page with the picture and all tables to this HTML file."""
    markdown: Path | None = None
    """With --all: write the tables to this Markdown file, and the picture to overview.svg beside it."""
    savepath: Path = Path(SAVEPATH)
    """Directory of the results: one file per mechanism, probe and seed."""


@dataclass(frozen=True, kw_only=True)
class CardFlags(MachineFlags, EvidenceFlags):
    """Train small models with an attention mechanism and with softmax on the same probes, and compare them:
    scores over several seeds, cost, where weight goes, and claims of papers. MECHANISM: parts as for `regard
    train --attention`, such as sink, alibi,sink or mymodule:MyPart; or --all. Results are stored one by one:
    a repeated command continues where it stopped."""


def run(argv: list[str]) -> None:
    """Measure the mechanisms, print the tables and write the files."""
    names, flags = read_command(CardFlags, argv, "regard card [MECHANISM]")
    if bool(names) == flags.all:
        raise InputError("name one mechanism, as in `regard card alibi,sink`, or give --all")
    if flags.markdown is not None and not flags.all:
        raise InputError("--markdown writes a table of all mechanisms: add --all, or give --html")
    for path in (flags.json, flags.html, flags.markdown):
        if path is not None:
            check_writable(path)
    machines = make_backend(flags)
    with resumable():
        cards = measure_cards(
            names or MECHANISMS, seeds=flags.seeds, steps=flags.steps, savepath=flags.savepath, on=machines
        )
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    print_table(
        Group(overview_table(cards), "", claim_table(all_claims(cards))) if flags.all else card_tables(cards[0]),
        width,
    )
    if flags.json is not None:
        write_json(flags.json, [card_json(card) for card in cards] if flags.all else card_json(cards[0]))
        sys.stdout.write(f"Saved {flags.json}\n")
    if flags.html is not None:
        sys.stdout.write(f"Saved {write_page(cards, flags.html)}\n")
    if flags.markdown is not None:
        sys.stdout.write("".join(f"Saved {path}\n" for path in write_markdown(cards, flags.markdown)))
