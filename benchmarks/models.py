"""Which architectures of Hugging Face's are recorded rightly: writes docs/models.md.

    python benchmarks/models.py [--only NAME ...] [--out docs/models.md]

Every architecture is a small random model, built from its config and never downloaded. What `regard.record`
finds is compared with what a copy of the model reports when it works attention out by itself (`eager`,
`output_attentions`).
"""

import argparse
import sys
from pathlib import Path

import torch
from model_checks import CHECKS, Row, examine
from small_models import ARCHITECTURES

HEADER = """# Models that are recorded

`regard.record(model)` on small random models of {count} architectures of Hugging Face's (transformers
{transformers}, PyTorch {torch}), made by `make models` and never downloaded. What it keeps is compared with what
a copy of the model reports that works its attention out by itself (`attn_implementation="eager"`,
`output_attentions=True`). {right} of {count} are right in every way; the rest is named below the table.
Of models that always work attention out by hand, what they report is also what is recorded: there, the table says
that it is asked for, named, masked and joined rightly.

- *Layers*: records of one pass; *+n* are those of which the model itself reports nothing.
- *Off by*: the largest difference of any weight in all these checks, in float32.
- *Padding*: with padding on the right and on the left, weights, masks and outputs are the model's.
- *eager, sdpa, flex*: set to each implementation that the model accepts, and set to the same one afterwards.
- *Inside*: in a module of one's own, and in `DataParallel`. *Repeated*: called twice, it has two records of each
  layer. *Mixed*: beside a copy of another implementation, and after an exception.
- *Greedy, sampling, beams*: what was recorded of each generated token, with a cache, is what the model reports of
  the whole result.

A `-` means that the model has no such thing. G: groups of heads share their keys. W: some layers see a window.

"""


def as_table(rows: list[Row]) -> str:
    """Return the rows as a table."""
    import transformers

    right = sum(row.right and not row.architecture.excuse for row in rows)
    versions = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
    columns = ["Architecture", "", "Layers", "Off by", *CHECKS]
    lines = [HEADER.format(count=len(rows), right=right, **versions) + f"| {' | '.join(columns)} |"]
    lines.append("|---" * len(columns) + "|")
    recorded = [row for row in rows if not row.architecture.excuse]
    for sort in dict.fromkeys(row.architecture.sort for row in recorded):
        lines.append(f"| **{sort}** |" + " |" * (len(columns) - 1))
        lines += [_line(row) for row in recorded if row.architecture.sort == sort]
    notes = [f"- **{row.architecture.name}**: {row.architecture.note}" for row in rows if row.architecture.note]
    excuses = [
        f"- **{row.architecture.name}**: {row.architecture.excuse}" for row in rows if row.architecture.excuse
    ]
    return "\n".join([*lines, "", "What to know of some:", "", *notes, "", WITHOUT, "", *excuses, ""])


WITHOUT = "What cannot be recorded, which `record` says in a warning:"


def _line(row: Row) -> str:
    marks = ("G" if row.architecture.heads_differ else "") + ("W" if row.architecture.window else "")
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
    """Check all architectures, or some, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    rows = []
    for architecture in ARCHITECTURES:
        if not options.only or architecture.name in options.only:
            rows.append(examine(architecture))
            print("right" if rows[-1].right else "WRONG", architecture.name, rows[-1].found, flush=True)
    if options.out:
        options.out.write_text(as_table(rows), encoding="utf-8")
    sys.exit(not all(row.right for row in rows))


if __name__ == "__main__":
    main()
