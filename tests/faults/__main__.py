"""`python -m tests.faults CAMPAIGN`: see `tests.faults.commands` and its neighbours."""

import argparse
import sys

from tests.faults import commands, kills

CAMPAIGNS = {"commands": commands.main, "kills": kills.main, "signals": kills.main_signals}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("campaign", choices=CAMPAIGNS)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    given = parser.parse_args()
    found = CAMPAIGNS[given.campaign](given.count, given.seed, given.only)
    sys.stdout.write(found.told())
    sys.exit(bool(found.faults))
