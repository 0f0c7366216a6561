"""Test which Hugging Face architectures are recorded correctly, and write two pages of the documentation.

    python benchmarks/models.py [--only NAME ...] [--out docs]

docs/reference/models.md lists the architectures by result; docs/dev/architectures.md shows all checks. Each
architecture is a small random model, built from its config without a download. The weights of `regard.record`
are compared with the weights that a copy of the model returns (`eager`, `output_attentions`). All other
architectures of the installed transformers are tested with fewer checks and a different reference: see
`every_architecture`.
"""

import argparse
import re
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path

import torch
from every_architecture import CHECKS as OTHER_CHECKS, Result, examine as examine_any, model_names
from model_checks import CHECKS, Row, examine
from small_models import ARCHITECTURES

HEADER = """# Checks of recorded architectures

[Recorded architectures](../reference/models.md) is the page for users.

`make models` tests `regard.record` on small random models of {count} Hugging Face architectures
(transformers {transformers}, PyTorch {torch}). No model is downloaded. A copy of each model returns its own
attention weights (`attn_implementation="eager"`, `output_attentions=True`), and the recorded weights must be
equal. {right} of {count} architectures pass every check; the others are listed below the table. For models with
their own attention code, Regard records the weights that the model returns, so the checks cover only names,
masks and generation.

| column | check |
| --- | --- |
| Layers | number of records in one pass; *+n*: layers whose weights the model does not return |
| Off by | largest difference of any weight in all checks, in float32 |
| padding right, left | weights, masks and outputs of padded batches |
| eager, sdpa, flex | each attention implementation that the model accepts; the setting does not change |
| inside | the model inside another module, and in `DataParallel` |
| repeated | two calls give two records for each layer |
| mixed | together with a copy that has another implementation, and after an exception |
| greedy, sampling, beams | records of generation with a cache equal the records of one pass over the result |

`-`: does not apply. G: groups of heads share their keys. W: some layers have a sliding window.

"""


def as_table(rows: list[Row]) -> str:
    """Return the table of the checked architectures."""
    import transformers

    right = sum(row.right and not row.architecture.unsupported for row in rows)
    versions = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
    columns = ["Architecture", "", "Layers", "Off by", *CHECKS]
    lines = [HEADER.format(count=len(rows), right=right, **versions) + f"| {' | '.join(columns)} |"]
    lines.append("|---" * len(columns) + "|")
    recorded = [row for row in rows if not row.architecture.unsupported]
    for sort in dict.fromkeys(row.architecture.category for row in recorded):
        lines.append(f"| **{sort}** |" + " |" * (len(columns) - 1))
        lines += [_line(row) for row in recorded if row.architecture.category == sort]
    notes = notes_of(rows)
    excuses = [
        f"- **{row.architecture.name}**: {row.architecture.unsupported}" for row in rows if row.architecture.unsupported
    ]
    return "\n".join([*lines, "", "Notes:", "", *notes, "", WITHOUT, "", *excuses, ""])


SUMMARY = """# Recorded architectures

`make models` tests `regard.record` on small random models of Hugging Face architectures (transformers
{transformers}, PyTorch {torch}). No model is downloaded. [The table of checks](../dev/architectures.md) has the
details.

## Checked in depth

For these {right} architectures, recorded weights equal the weights that the model returns, recorded masks agree
with the weights, and outputs do not change. The tests cover padding, every implementation of attention, use
inside other modules, and generation.

| kind | architectures |
| --- | --- |
"""
OTHERS = """
## Checked against every softmax

All {count} config types of transformers were built with small sizes where possible. A hook on every softmax and
on every call of PyTorch's fused kernel provides reference weights, independently of Regard. Regard records
{wrong} types incorrectly. Regard records these {exact} types exactly:

"""
LISTS = {
    "warned": "Some attention of these types is not recorded, and a warning names the modules:",
    "no attention": "These types have no softmax attention:",
    "not built": "These types were not tested, because the program could not build a small model or its inputs:",
}
"""Introductions of the lists of architectures by status."""


def summary(kinds: dict[str, list[str]], notes: list[str], names: dict[str, list[str]]) -> str:
    """Return the page for users: architectures by kind, notes, and the names of all config types by status."""
    import transformers

    right = sum(map(len, kinds.values()))
    text = SUMMARY.format(right=right, transformers=transformers.__version__, torch=torch.__version__.split("+")[0])
    text += "".join(f"| {kind} | {', '.join(members)} |\n" for kind, members in kinds.items())
    text += "\n".join(["", *notes, ""])
    count, exact, wrong = sum(map(len, names.values())), len(names["exact"]), len(names.get("wrong", ()))
    text += OTHERS.format(count=count, exact=exact, wrong=wrong) + _joined(names["exact"])
    for status, introduction in LISTS.items():
        text += f"\n{introduction}\n\n{_joined(names[status])}"
    return text


def _joined(names: list[str]) -> str:
    rows = [f"| {letter} | {', '.join(group)} |" for letter, group in groupby(sorted(names), lambda name: name[0])]
    return "\n".join(["|  | types |", "|---|---|", *rows]) + "\n"


def write_pages(folder: Path, rows: list[Row], results: list[Result]) -> None:
    """Write both pages into the folder of the documentation."""
    kinds: dict[str, list[str]] = {}
    for row in rows:
        if not row.architecture.unsupported:
            kinds.setdefault(row.architecture.category, []).append(row.architecture.name)
    names: dict[str, list[str]] = {}
    for result in results:
        names.setdefault(result.status, []).append(result.name)
    known = {row.architecture.name for row in rows}
    both = sum(result.name in known and bool(result.checks) for result in results)
    details = as_table(rows) + every_table(results, both)
    (folder / "dev" / "architectures.md").write_text(details, encoding="utf-8")
    (folder / "reference" / "models.md").write_text(summary(kinds, notes_of(rows), names), encoding="utf-8")


def notes_of(rows: list[Row]) -> list[str]:
    """Return the notes on architectures as list items."""
    return [f"- **{row.architecture.name}**: {row.architecture.note}" for row in rows if row.architecture.note]


WITHOUT = "Not recorded (`regard.record` prints a warning):"


EVERY = """
## Every architecture

All {count} config types of transformers {transformers} were built with small sizes
(`benchmarks/tiny_configs.py`): **{exact} exact**, **{warned} warned** (some attention is not recorded, and a
warning names the module and the reason), {wrong} wrong, {none} without softmax attention, {unbuilt} not built.
No check ends with a traceback, and no attention is omitted without a warning. {both} of these types are also in
the table above.

The reference is independent of Regard. A copy of the model runs while a hook stores the result of every softmax
and the weights of every call of PyTorch's fused kernel (computed in float64), with the calling module. Each of
these results must be in the records, or a warning must name its module.

| column | check |
| --- | --- |
| Layers | number of records in one pass |
| Not recorded | number of modules in `records.left_out`: layers of hybrid models without softmax attention |
| plain | weights and output for 13 tokens; windows, chunks and top-k of the configs are 4 |
| right, left | weights and output with padding |
| row | the second input is fully masked: the output does not change, and the weights of this input are zero, \
except in the models that are listed below the table |
| eager | weights and output with the eager implementation |
| generate | 6 tokens generated after 7, beyond the window, compared with one pass without a cache |

`-`: does not apply, or the model itself computes another result with its cache.

"""
CAUSES = {
    r"requires the (\w+) library": "need the library {}, which is not installed",
    r"no class of models reads it": "are configs of a part, or of a composite without a model class",
    r"no inputs are known|missing \d+ required|forward\(\) missing|Exactly 1|exactly one of|have to specify"
    r"|cannot be `?None|NoneType|Expected 5|5D tensor": "need inputs that the checks do not create",
    r"parameters in its smallest": "are too large in the smallest sizes that the rules can derive",
}
"""Reasons to print, by a pattern of the error that stopped a build."""


def every_table(results: list[Result], both: int) -> str:
    """Return the section on all architectures: a table, and lists of the architectures outside the table."""
    import transformers

    counts = Counter(result.status for result in results)
    text = EVERY.format(
        count=len(results),
        transformers=transformers.__version__,
        exact=counts["exact"],
        warned=counts["warned"],
        wrong=counts["wrong"],
        none=counts["no attention"],
        unbuilt=counts["not built"],
        both=both,
    )
    columns = ["Architecture", "Class", "Layers", "Not recorded", "Off by", *OTHER_CHECKS, ""]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for result in results:
        if result.checks:
            difference = f"{result.difference:.0e}" if result.difference else "0"
            marks = [
                "yes" if outcome == "yes" else "-" if outcome == "-" else "no" for outcome in result.checks.values()
            ]
            cells = [result.name, result.kind, str(result.layers), str(result.left_out or ""), difference, *marks]
            lines.append(f"| {' | '.join([*cells, result.status])} |")
    lines += ["", "Types with a warning, with the first module or the reason:", ""]
    lines += [f"- **{result.name}**: {result.why}" for result in results if result.status == "warned"]
    wrong = [result for result in results if result.status == "wrong"]
    if wrong:
        lines += ["", "Wrong:", ""]
        lines += [
            f"- **{result.name}**: {next(outcome for outcome in result.checks.values() if outcome not in 'yes-')}"
            for result in wrong
        ]
    unmasked = [result.name for result in results if result.unmasked]
    if unmasked:
        lines += ["", "In these types, the model itself gives weights to a fully masked input:", ""]
        lines.append(", ".join(unmasked) + ".")
    lines += ["", "These types have no softmax attention:", ""]
    lines.append(", ".join(result.name for result in results if result.status == "no attention") + ".")
    lines += ["", "These types were not built. They", ""]
    groups: dict[str, list[str]] = {}
    for result in results:
        if result.status == "not built":
            groups.setdefault(_cause(result.why), []).append(result.name)
    lines += [f"- {why}: {', '.join(names)}." for why, names in groups.items()]
    return text + "\n".join(lines) + "\n"


def _cause(why: str) -> str:
    for pattern, cause in CAUSES.items():
        if match := re.search(pattern, why):
            return cause.format(*match.groups())
    return "have sizes that the rules cannot make consistent"


def _line(row: Row) -> str:
    marks = ("G" if row.architecture.grouped_heads else "") + ("W" if row.architecture.window else "")
    layers = f"{row.layers}" + (f" (+{row.more})" if row.more else "")
    cells = [
        row.architecture.name,
        marks,
        layers,
        f"{row.difference:.0e}" if row.difference else "0",
        *row.outcomes.values(),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Check all architectures, or those of `--only`, and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    rows = []
    for architecture in ARCHITECTURES:
        if not options.only or architecture.name in options.only:
            rows.append(examine(architecture))
            print("right" if rows[-1].right else "WRONG", architecture.name, rows[-1].outcomes, flush=True)
    others = []
    for name in model_names():
        if not options.only or name in options.only:
            others.append(examine_any(name))
            print(others[-1].status, name, others[-1].why, others[-1].checks, flush=True)
    if options.out:
        write_pages(options.out, rows, others)
    sys.exit(not all(row.right for row in rows) or any(result.status == "wrong" for result in others))


if __name__ == "__main__":
    main()
