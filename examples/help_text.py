"""Write the sentences of Python's help topics to a file, one paragraph per line, as a text for a language model.

python help_text.py text.txt
"""

import sys
from pathlib import Path
from pydoc_data.topics import topics


def main() -> None:
    """Write every paragraph once, without code and tables."""
    if len(sys.argv) != 2:
        sys.exit("give the name of the new file: python help_text.py text.txt")
    parts = (" ".join(part.split()) for name in sorted(topics) for part in topics[name].split("\n\n"))
    sentences = dict.fromkeys(part for part in parts if len(part) > 60 and part[0].isupper() and part[-1] == ".")
    Path(sys.argv[1]).write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")


if __name__ == "__main__":
    main()
