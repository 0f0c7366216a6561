"""Tables of measurements, and their places in the documents."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def markdown(head: list[str], body: list[list[str]]) -> str:
    """Write a table, first column to the left and the others to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    """Write median, least and largest."""
    return f"{form(statistics.median(values))} ({form(min(values))} to {form(max(values))})"


def write_tables(page: Path, tables: Mapping[str, str]) -> None:
    """Put each table between `<!-- table: NAME -->` and `<!-- end -->`; the text around them stays."""
    text = page.read_text()
    for name, table in tables.items():
        before, begin, rest = text.partition(f"<!-- table: {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        assert begin and end, f"{page} has no place for table {name}"
        text = before + begin + table + "\n" + end + after
    page.write_text(text)
    print(f"Wrote {page}")
