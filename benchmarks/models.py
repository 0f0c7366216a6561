"""Check which transformers architectures are recorded correctly, and write docs/models.md.

    python benchmarks/models.py [--only NAME ...] [--out docs/models.md]

Every architecture is a small random model, built from its config without a download. The weights of
`regard.record` are compared with those that a copy of the model returns (`eager`, `output_attentions`). Then all
architectures of the installed transformers follow, with fewer checks and another reference: see
`every_architecture`.
"""

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

import torch
from every_architecture import CHECKS as OTHER_CHECKS
from every_architecture import Result, model_names
from every_architecture import examine as examine_any
from model_checks import CHECKS, Row, examine
from small_models import ARCHITECTURES

HEADER = """# Models that are recorded

`make models` runs `regard.record(model)` on small random models of {count} transformers architectures
(transformers {transformers}, PyTorch {torch}), without a download. The recorded weights are compared with those
that a copy of the model returns (`attn_implementation="eager"`, `output_attentions=True`). {right} of {count}
pass every check; the list below the table names the others. Some models always compute attention in their own
code, and the weights that they return are also the recorded ones. For these, the table checks names, masks and
the order of generated steps.

- *Layers*: records of one pass; *+n* are layers whose weights the model itself does not return.
- *Off by*: the largest difference of any weight in all checks, in float32.
- *Padding*: weights, masks and outputs are the model's, with padding on the right and on the left.
- *eager, sdpa, flex*: the same with each implementation that the model accepts; its setting does not change.
- *Inside*: in a custom module, and in `DataParallel`. *Repeated*: each of two calls has its own records.
  *Mixed*: together with a copy of another implementation, and after an exception.
- *Greedy, sampling, beams*: the rows of each token generated with a cache equal those of one pass over the
  result.

A `-` means that a check does not apply. G: groups of heads share keys. W: some layers attend to a window.

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
    for category in dict.fromkeys(row.architecture.category for row in recorded):
        lines.append(f"| **{category}** |" + " |" * (len(columns) - 1))
        lines += [_line(row) for row in recorded if row.architecture.category == category]
    notes = [f"- **{row.architecture.name}**: {row.architecture.note}" for row in rows if row.architecture.note]
    excuses = [
        f"- **{row.architecture.name}**: {row.architecture.unsupported}"
        for row in rows
        if row.architecture.unsupported
    ]
    return "\n".join([*lines, "", "Remarks:", "", *notes, "", WITHOUT, "", *excuses, ""])


WITHOUT = "Not recorded, with a warning:"


EVERY = """
## Every architecture

All {count} types of config in transformers {transformers}, each built with sizes derived from its default config
(`benchmarks/tiny_configs.py`): **{exact} exact**, **{warned} warned** (some attention is not recorded, and a
warning names it with its cause), {wrong} wrong, {none} without softmax attention, {unbuilt} not built. No check
ends in an exception, and no layer is missing without a warning. {both} of these are also in the table above.

The reference is independent of Regard: a copy of the model runs while the result of every softmax, and the
weights of every call of PyTorch's fused kernel (computed in float64), are stored with the calling module. Each
must be in the record, or a warning must name the module.

- *Layers*: records of one pass; *Not recorded*: modules in `records.left_out`, which are those without softmax
  attention in hybrid models.
- *plain*: weights and output for 13 tokens, with windows, chunks and top-k of 4.
- *right*, *left*: the same with padding. *row*: the second input is fully masked; the output is the same as
  without recording, and the input has no weights, except in the models listed below the table.
- *eager*: weights and output with that implementation.
- *generate*: the weights of 6 tokens after a prompt of 7, beyond the window, against one pass without a cache.
  A `-` also means that the model computes something else with its cache.

"""
CAUSES = {
    r"requires the (\w+) library": "need the library {}, which is not installed",
    r"no class of models reads it": "are configs of a part, or of a composite without a model class",
    r"no inputs are known|missing \d+ required|forward\(\) missing|Exactly 1|exactly one of|have to specify"
    r"|cannot be `?None|NoneType|Expected 5|5D tensor": "need inputs that the checks do not make",
    r"parameters in its smallest": "are too large in the sizes derived here",
}
"""By pattern of an error: the reason why a model was not built."""


def every_table(results: list[Result], both: int) -> str:
    """Return the section on all architectures: a table, and lists of those not in it."""
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
            off = f"{result.difference:.0e}" if result.difference else "0"
            marks = ["yes" if each == "yes" else "-" if each == "-" else "no" for each in result.checks.values()]
            cells = [result.name, result.kind, str(result.layers), str(result.left_out or ""), off, *marks]
            lines.append(f"| {' | '.join([*cells, result.status])} |")
    lines += ["", "Warned, with the first named module or the cause:", ""]
    lines += [f"- **{each.name}**: {each.why}" for each in results if each.status == "warned"]
    wrong = [each for each in results if each.status == "wrong"]
    if wrong:
        lines += ["", "Wrong:", ""]
        lines += [
            f"- **{each.name}**: {next(v for v in each.checks.values() if v not in 'yes-')}" for each in wrong
        ]
    unmasked = [each.name for each in results if each.unmasked]
    if unmasked:
        lines += ["", "Models that give weights to a fully masked input:", ""]
        lines.append(", ".join(unmasked) + ".")
    lines += ["", "Without softmax attention:", ""]
    lines.append(", ".join(each.name for each in results if each.status == "no attention") + ".")
    lines += ["", "Not built, with the reason:", ""]
    groups: dict[str, list[str]] = {}
    for each in results:
        if each.status == "not built":
            groups.setdefault(_cause(each.why), []).append(each.name)
    lines += [f"- {why}: {', '.join(names)}." for why, names in groups.items()]
    return text + "\n".join(lines) + "\n"


def _cause(why: str) -> str:
    for pattern, cause in CAUSES.items():
        if found := re.search(pattern, why):
            return cause.format(*found.groups())
    return "have sizes that the rules cannot make consistent"


def _line(row: Row) -> str:
    marks = ("G" if row.architecture.grouped_heads else "") + ("W" if row.architecture.window else "")
    layers = f"{row.layers}" + (f" (+{row.more})" if row.more else "")
    cells = [
        row.architecture.name,
        marks,
        layers,
        f"{row.difference:.0e}" if row.difference else "0",
        *row.found.values(),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Check all architectures, or those named by --only, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    rows = []
    for architecture in ARCHITECTURES:
        if not options.only or architecture.name in options.only:
            rows.append(examine(architecture))
            print("right" if rows[-1].right else "WRONG", architecture.name, rows[-1].found, flush=True)
    known = {row.architecture.name for row in rows}
    others = []
    for name in model_names():
        if not options.only or name in options.only:
            others.append(examine_any(name))
            print(others[-1].status, name, others[-1].why, others[-1].checks, flush=True)
    if options.out:
        both = sum(result.name in known and bool(result.checks) for result in others)
        options.out.write_text(as_table(rows) + every_table(others, both), encoding="utf-8")
    sys.exit(not all(row.right for row in rows) or any(result.status == "wrong" for result in others))


if __name__ == "__main__":
    main()
