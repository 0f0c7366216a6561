"""The bench: explanation methods measured on models whose answer is known."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.bench.bench import SAVEPATH as SAVEPATH, SEEDS as SEEDS, bench as bench
    from regard.bench.bench_result import BenchResult as BenchResult
    from regard.bench.known_models import KnownModel as KnownModel
    from regard.bench.page import write_bench_page as write_bench_page, write_markdown as write_markdown

late(__name__)
