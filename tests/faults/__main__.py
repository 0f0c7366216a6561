"""Campaigns of tests with random faults; the module of each campaign defines the correct outcomes.

python -m tests.faults all --seed 1               every campaign, as `make campaign SEED=1`; the findings are
                                                  stored in docs/dev/campaign.json and docs/dev/campaign.md
python -m tests.faults commands --count 500       one campaign
python -m tests.faults commands --only 123        repeat one trial, with its full output
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from tests.faults import commands, files, foreign, kills, learners, links, requests, texts, together
from tests.faults.report import Report, read_json, write_json, write_table

CAMPAIGNS: dict[str, Callable[..., Report]] = {
    "commands": commands.main,
    "files": files.main,
    "requests": requests.main,
    "texts": texts.main,
    "kills": kills.main,
    "links": links.main,
    "learners": learners.main,
    "signals": kills.main_signals,
    "together": together.main,
    **foreign.CAMPAIGNS,
}
DOCS = Path(__file__).parents[2] / "docs" / "dev"
KEPT, PAGE = DOCS / "campaign.json", DOCS / "campaign.md"


def keep(found: list[dict[str, object]]) -> None:
    """Add reports to those of other campaigns and seeds, and write the table of all to the page."""
    kept = {(each["name"], each["seed"]): each for each in [*read_json(KEPT), *found]}
    reports = [kept[key] for key in sorted(kept, key=str)]
    write_json(KEPT, reports)
    write_table(PAGE, reports)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(";")[0])
    parser.add_argument("campaign", choices=["all", *CAMPAIGNS])
    parser.add_argument("--count", type=int, help="number of trials")
    parser.add_argument("--seed", type=int, default=1, help="seed of all random choices (default: 1)")
    parser.add_argument("--only", type=int, help="number of a single trial")
    parser.add_argument("--keep", action="store_true", help="store the findings in docs/dev/, as `all` does")
    given = parser.parse_args()
    failed = False
    for name in CAMPAIGNS if given.campaign == "all" else [given.campaign]:
        count = given.count or (kills.USUAL_COUNT if name == "kills" else None)
        report = CAMPAIGNS[name](count, given.seed, given.only)
        sys.stdout.write(report.told())
        sys.stdout.flush()
        failed = failed or bool(report.faults)
        if given.keep or given.campaign == "all":
            keep([report.json()])
    sys.exit(failed)
