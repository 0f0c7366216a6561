"""`python -m regard`, the same as the command `regard`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current directory, before anything is looked for there
    from regard.cli import main

    sys.exit(main())
