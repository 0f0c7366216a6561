"""`regard card MECHANISM`: evidence about an attention mechanism, beside softmax."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Group

from regard.cli.compare import MachineFlags, make_backend
from regard.cli.parsing import read_command
from regard.cli.terminal import print_table, resumable, save_files
from regard.errors import InputError
from regard.io import check_writable
from regard_lab.cards.card import (
    MECHANISMS,
    SAVEPATH,
    SEEDS,
    card_json,
    card_tables,
    claim_table,
    measure_cards,
    overview_table,
    write_page,
)

WIDEST = 160  # characters of a line of the tables


@dataclass(frozen=True, kw_only=True)
class CardFlags:
    """Train small models with an attention mechanism and with softmax on the same probes, and compare them:
    scores over several seeds, cost, where weight goes, and claims of papers. MECHANISM: parts as for `regard
    train --attention`, such as sink, alibi,sink or mymodule:MyPart; or --all. Results are stored one by one:
    a repeated command continues where it stopped."""

    seeds: int = SEEDS
    """Number of seeds: 0, 1, and so on."""
    steps: int | None = None
    """Number of training steps of every probe, for a quick look. Default: that of each probe, 500 to 1000."""
    all: bool = False
    """Measure all mechanisms of a fixed list, and print one table: 4 to 5 hours of CPU time with 10 seeds."""
    json: Path | None = None
    """Write all numbers to this JSON file."""
    html: Path | None = None
    """Write a page with the picture and all tables to this HTML file."""
    savepath: Path = Path(SAVEPATH)
    """Directory of the results: one file per mechanism, probe and seed."""
    machines: MachineFlags = field(default_factory=MachineFlags)


def run_card(argv: list[str]) -> None:
    names, flags = read_command(CardFlags, argv, "regard card [MECHANISM]")
    if bool(names) == flags.all:
        raise InputError("name one mechanism, as in `regard card alibi,sink`, or give --all")
    check_writable(flags.json, flags.html)
    machines = make_backend(flags.machines)
    with resumable():
        cards = measure_cards(
            names or MECHANISMS, seeds=flags.seeds, steps=flags.steps, savepath=flags.savepath, on=machines
        )
    tables = Group(overview_table(cards), "", claim_table(cards)) if flags.all else card_tables(cards[0])
    print_table(tables, WIDEST)
    content = [card_json(card) for card in cards] if flags.all else card_json(cards[0])
    save_files(content, flags.json, flags.html, partial(write_page, cards))
