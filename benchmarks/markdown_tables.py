"""Tables of measurements, and their places in the pages on results."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
RESULTS = DOCS / "dev" / "results"


def markdown(head: list[str], body: list[list[str]]) -> str:
    """Write a table, first column to the left and the others to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    """Write median, least and largest."""
    return f"{form(statistics.median(values))} ({form(min(values))} to {form(max(values))})"


def pages() -> list[Path]:
    """Return the pages that hold tables: docs/explanation/results.md and docs/dev/results/*.md."""
    return [DOCS / "explanation" / "results.md", *sorted(RESULTS.glob("*.md"))]


def write_tables(tables: Mapping[str, str]) -> None:
    """Put each table between `<!-- table: NAME -->` and `<!-- end -->`, on the one page that has this place.

    The text around them stays, so a table can be moved to another page with its two markers.
    """
    texts = {page: page.read_text() for page in pages()}
    for name, table in tables.items():
        marker = f"<!-- table: {name} -->\n"
        places = [page for page, text in texts.items() for _ in range(text.count(marker))]
        assert len(places) == 1, f"table {name} has {len(places)} places on the pages on results, not one"
        before, _, rest = texts[places[0]].partition(marker)
        _, end, after = rest.partition("<!-- end -->")
        assert end, f"{places[0]} does not say where table {name} ends"
        texts[places[0]] = f"{before}{marker}{table}\n{end}{after}"
    for page, text in texts.items():
        if text != page.read_text():
            page.write_text(text)
            print(f"Wrote {page}")
