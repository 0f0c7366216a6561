"""The bench: explanation methods measured on models whose answer is known."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.bench.bench import SAVEPATH, SEEDS, bench
    from regard.bench.bench_result import BenchResult
    from regard.bench.known_models import KnownModel
    from regard.bench.page import write_markdown, write_page

late(__name__)

__all__ = ["SAVEPATH", "SEEDS", "BenchResult", "KnownModel", "bench", "write_markdown", "write_page"]
