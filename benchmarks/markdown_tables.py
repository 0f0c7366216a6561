"""Markdown tables of measurements, and their insertion into the pages on results."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
RESULTS = DOCS / "dev" / "results"


def markdown(head: list[str], body: list[list[str]]) -> str:
    """Return a Markdown table with a left-aligned first column and right-aligned other columns."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with left-aligned columns; `|` in a cell becomes `/`."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    """Format median, minimum and maximum."""
    return f"{form(statistics.median(values))} ({form(min(values))} to {form(max(values))})"


def pages() -> list[Path]:
    """Return the pages that contain tables: docs/explanation/results.md and docs/dev/results/*.md."""
    return [DOCS / "explanation" / "results.md", *sorted(RESULTS.glob("*.md"))]


def write_tables(tables: Mapping[str, str]) -> None:
    """Write each table between `<!-- table: NAME -->` and `<!-- end -->`, on the only page with this marker.

    The text around the markers does not change, so you can move a table to another page together with its two
    markers.
    """
    texts = {page: page.read_text() for page in pages()}
    for name, table in tables.items():
        marker = f"<!-- table: {name} -->\n"
        matches = [page for page, text in texts.items() for _ in range(text.count(marker))]
        assert len(matches) == 1, f"table {name} has {len(matches)} markers on the pages of results: expected one"
        before, _, rest = texts[matches[0]].partition(marker)
        _, end, after = rest.partition("<!-- end -->")
        assert end, f"{matches[0]} has no end marker for table {name}"
        texts[matches[0]] = f"{before}{marker}{table}\n{end}{after}"
    for page, text in texts.items():
        if text != page.read_text():
            page.write_text(text)
            print(f"Wrote {page}")
