"""Measure how often sentences about heads are wrong, on models whose circuit is known, and store the rates.

    python -m regard.bench.sentences --write

Compiled models and traps are split by name: thresholds of `regard.interpret.needs` were set on the first half (in
alphabetical order, every second name), and the rates are those of the other half. Untrained models of the same
sizes show how often nothing is claimed about a model that has learned nothing.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import regard.interpret
from regard.bench.known_models import KnownModel, compiled_model, trap_model
from regard.interpret import head_importance
from regard.interpret.needs import Group, Needs, find_needs
from regard.interpret.sentence_errors import FILE
from regard.programs import PROGRAMS, TRAPS, Circuit

INPUTS = 500
"""Inputs over which heads are judged."""
Outcome = tuple[str, bool]
"""Kind of a sentence, and whether it is right."""


def judge(needs: Needs, circuit: Circuit) -> list[Outcome]:
    """Return every sentence about heads whose truth is defined, and whether it is right."""
    outcomes: list[Outcome] = []
    for (layer, head), verdict in needs.verdicts.items():
        truth = circuit.needed[layer][head]
        if truth is not None and verdict != "cannot be told":
            outcomes.append((verdict, (verdict == "needed") == truth))
    outcomes += [("replace each other", _replace(group, circuit)) for group, _ in needs.replacing]
    outcomes += [("cancel each other", _cancel(group, circuit)) for group, _ in needs.cancelling]
    return outcomes


def _replace(group: Group, circuit: Circuit) -> bool:
    """Return whether all heads of a group are used, and none is needed alone."""
    return all(circuit.used[layer][head] and not circuit.needed[layer][head] for layer, head in group)


def _cancel(group: Group, circuit: Circuit) -> bool:
    """Return whether all heads of a group are needed alone, and none is used."""
    return all(circuit.needed[layer][head] and not circuit.used[layer][head] for layer, head in group)


def measure(known: KnownModel, *, untrained: bool = False) -> Needs:
    """Return which heads a known model needs, or those of an untrained model of its size."""
    subject = known.subject.untrained(known.seed + 1000) if untrained else known.subject
    inputs = subject.unseen(INPUTS, known.seed, purpose="sentences")
    importance = head_importance(subject, samples=100, seed=known.seed)
    return find_needs(subject, inputs, importance.added, seed=known.seed)


def held_out() -> list[str]:
    """Return the names of the models whose rates are reported."""
    return sorted([*PROGRAMS, *TRAPS])[1::2]


def measure_all(names: Iterable[str], seeds: Sequence[int]) -> dict[str, dict[str, int]]:
    """Return by kind of sentence: how many were tested and wrong, and how many heads have no claim."""
    tested, wrong, heads = Counter[str](), Counter[str](), Counter[str]()
    for name in names:
        for seed in seeds:
            known = (trap_model if name in TRAPS else compiled_model)(name, seed)
            needs = measure(known)
            for kind, right in judge(needs, known.circuit) if known.circuit else ():
                tested[kind] += 1
                wrong[kind] += not right
            heads["known"] += sum(v is not None for layer in known.circuit.needed.values() for v in layer)  # type: ignore[union-attr]
            if seed == seeds[0]:
                verdicts = measure(known, untrained=True).verdicts
                heads["untrained"] += len(verdicts)
                heads["untrained without a claim"] += sum(v == "cannot be told" for v in verdicts.values())
            sys.stderr.write(
                f"{name}, seed {seed}: tested {dict(tested)}, wrong {dict(wrong)}, heads {dict(heads)}\n"
            )
    return {"tested": dict(tested), "wrong": dict(wrong), "heads": dict(heads)}


def main() -> None:
    """Measure the rates, print them, and with `--write` store them in the package."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default 3)")
    parser.add_argument("--write", action="store_true", help="store the rates in the package")
    arguments = parser.parse_args()
    counts = measure_all(held_out(), range(arguments.seeds))
    content = {
        "models": "compiled programs and traps, the half that set no threshold",
        "heads": counts["heads"],
        "kinds": {
            kind: {"tested": tested, "wrong": counts["wrong"].get(kind, 0)}
            for kind, tested in counts["tested"].items()
        },
    }
    sys.stdout.write(json.dumps(content, indent=1) + "\n")
    if arguments.write:
        path = Path(regard.interpret.__file__).parent / FILE
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
