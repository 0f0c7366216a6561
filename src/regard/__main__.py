"""Run the command `regard` as `python -m regard`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # do not search the current directory for modules
    from regard.cli import main

    sys.exit(main())
