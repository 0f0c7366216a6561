"""Letters that show which methods differ (compact letter display, Piepho 2004).

Two methods whose difference is shown have no letter in common; all other pairs share a letter.
"""

import string
from collections.abc import Collection, Sequence

ALPHABET = string.ascii_lowercase + string.ascii_uppercase


def assign_letters(names: Sequence[str], different: Collection[frozenset[str]]) -> dict[str, str]:
    """Return the letters of each name. `names` from best to worst; `different`: pairs that differ.

    Insert-and-absorb algorithm of Piepho (2004): begin with one set of all names, split each set that contains
    a differing pair, and delete sets that another set contains.

    >>> assign_letters(["best", "middle", "worst"], {frozenset({"best", "worst"})})
    {'best': 'a', 'middle': 'ab', 'worst': 'b'}
    """
    groups: list[frozenset[str]] = [frozenset(names)]
    for pair in sorted(different, key=sorted):
        split = [
            part for group in groups for part in ([group - {name} for name in pair] if pair <= group else [group])
        ]
        groups = [
            group
            for index, group in enumerate(split)
            if not any(group < other or (group == other and place < index) for place, other in enumerate(split))
        ]
    order = {name: place for place, name in enumerate(names)}
    groups.sort(key=lambda group: sorted(order[name] for name in group))
    symbols = [*ALPHABET, *(f"({number})" for number in range(len(ALPHABET), len(groups)))]
    return {
        name: "".join(symbol for symbol, group in zip(symbols, groups, strict=False) if name in group)
        for name in names
    }
