"""Programs that solve a puzzle in another way, and programs with one planted mistake.

The programs in `WRONG` were written before the diagnosis, those in `SECOND` and `THIRD` after it. At first, 25 of
37 and 19 of 34 of these were named: the general ideas and several repairs were added then. Each program has the
name of its puzzle, a pattern that the named mistake must match, and the code after the imports.
"""

IMPORTS = (
    "import operator\n"
    "from regard_lab.programs.language import \\\n"
    "    aggregate, average, constant, elementwise, indices, select, select_all, tokens, width\n"
    "\n"
)

WRONG = [
    ("first", "off by one", 'answer = aggregate(select(indices, constant(1)), tokens).otherwise("-")'),
    ("first", "own letter", "answer = aggregate(select(indices, indices), tokens)"),
    ("first", "swapped", 'answer = aggregate(select(constant(0), indices), tokens).otherwise("-")'),
    ("first", "letters? .* indices", 'answer = aggregate(select(tokens, constant(0)), tokens).otherwise("-")'),
    (
        "previous",
        "future|next letter|later",
        'answer = aggregate(select(indices, indices.map(lambda i: i + 1)), tokens).otherwise("-")',
    ),
    (
        "previous",
        "no value",
        "answer = aggregate(select(indices, indices.map(lambda i: i - 1)), tokens)",
    ),
    (
        "previous",
        "off by one",
        'answer = aggregate(select(indices, indices.map(lambda i: i - 2)), tokens).otherwise("-")',
    ),
    (
        "previous",
        "several steps",
        'answer = aggregate(select(indices, indices, operator.lt), tokens).otherwise("-")',
    ),
    ("previous", "own letter", "answer = aggregate(select(indices, indices), tokens)"),
    (
        "previous",
        "swapped",
        'answer = aggregate(select(indices.map(lambda i: i - 1), indices), tokens).otherwise("-")',
    ),
    ("count", "mean", "answer = average(select_all(), tokens.map(lambda t: int(t == 'a')))"),
    (
        "count",
        "itself|own step|strict",
        "answer = width(select(tokens, constant('a')) & select(indices, indices, operator.lt))",
    ),
    ("count", "own letter", "answer = width(select(tokens, tokens))"),
    ("count", "every letter|all letters", "answer = width(select_all())"),
    ("count", "own step|own letter", "answer = tokens.map(lambda t: int(t == 'a'))"),
    ("count", "other letter|wrong letter|must ask for 'a'", "answer = width(select(tokens, constant('b')))"),
    ("repeated", "itself", "answer = width(select(tokens, tokens)).map(lambda n: n > 0)"),
    ("repeated", "later|future", "answer = width(select(tokens, tokens)).map(lambda n: n > 1)"),
    (
        "repeated",
        "itself|strict",
        "before = select(tokens, tokens) & select(indices, indices, operator.le)\n"
        "answer = width(before).map(lambda n: n > 0)",
    ),
    (
        "repeated",
        "swapped|later",
        "before = select(tokens, tokens) & select(indices, indices, operator.gt)\n"
        "answer = width(before).map(lambda n: n > 0)",
    ),
    (
        "repeated",
        "neighbour|letter before|previous letter",
        "previous = aggregate(select(indices, indices.map(lambda i: i - 1)), tokens).otherwise('-')\n"
        "answer = elementwise(operator.eq, previous, tokens)",
    ),
    (
        "repeated",
        "opposite|negat",
        "before = select(tokens, tokens) & select(indices, indices, operator.lt)\n"
        "answer = width(before).map(lambda n: n == 0)",
    ),
    (
        "histogram",
        "earlier|so far|later",
        "answer = width(select(tokens, tokens) & select(indices, indices, operator.le))",
    ),
    ("histogram", "itself|too small", "answer = width(select(tokens, tokens)).map(lambda n: n - 1)"),
    ("histogram", "every letter|all letters|length", "answer = width(select_all())"),
    ("histogram", "mean", "answer = average(select(tokens, tokens), constant(1))"),
    (
        "reverse",
        "off by one",
        "end = elementwise(lambda n, i: n - i, width(select_all()), indices)\n"
        "answer = aggregate(select(indices, end), tokens).otherwise('-')",
    ),
    ("reverse", "unchanged|own letter", "answer = aggregate(select(indices, indices), tokens)"),
    (
        "reverse",
        "order|sign|negative",
        "end = elementwise(lambda n, i: i - n + 1, width(select_all()), indices)\n"
        "answer = aggregate(select(indices, end), tokens).otherwise('-')",
    ),
    (
        "reverse",
        "fixed",
        "answer = aggregate(select(indices, indices.map(lambda i: 4 - i)), tokens).otherwise('-')",
    ),
    (
        "rotate",
        "no value|end",
        "answer = aggregate(select(indices, indices.map(lambda i: i - 1)), tokens)",
    ),
    (
        "rotate",
        "other direction|to the left",
        "place = elementwise(lambda n, i: (i + 1) % n, width(select_all()), indices)\n"
        "answer = aggregate(select(indices, place), tokens)",
    ),
    (
        "rotate",
        "off by one|two steps",
        "place = elementwise(lambda n, i: (i - 2) % n, width(select_all()), indices)\n"
        "answer = aggregate(select(indices, place), tokens)",
    ),
    (
        "palindrome",
        "own pair|own step|single",
        "end = elementwise(lambda n, i: n - 1 - i, width(select_all()), indices)\n"
        "mirrored = aggregate(select(indices, end), tokens)\n"
        "answer = elementwise(operator.eq, tokens, mirrored)",
    ),
    (
        "palindrome",
        "opposite|negat",
        "end = elementwise(lambda n, i: n - 1 - i, width(select_all()), indices)\n"
        "mirrored = aggregate(select(indices, end), tokens)\n"
        "different = elementwise(operator.ne, tokens, mirrored)\n"
        "answer = width(select(different, constant(True))).map(lambda n: n > 0)",
    ),
    (
        "palindrome",
        "off by one",
        "end = elementwise(lambda n, i: n - i, width(select_all()), indices)\n"
        "mirrored = aggregate(select(indices, end), tokens)\n"
        "different = elementwise(operator.ne, tokens, mirrored)\n"
        "answer = width(select(different, constant(True))).map(lambda n: n == 0)",
    ),
    (
        "palindrome",
        "any|one pair",
        "end = elementwise(lambda n, i: n - 1 - i, width(select_all()), indices)\n"
        "mirrored = aggregate(select(indices, end), tokens)\n"
        "same = elementwise(operator.eq, tokens, mirrored)\n"
        "answer = width(select(same, constant(True))).map(lambda n: n > 0)",
    ),
    (
        "sort",
        "equal letters|ties",
        "place = width(select(tokens, tokens, operator.lt))\n"
        "answer = aggregate(select(place, indices), tokens).otherwise('-')",
    ),
    (
        "sort",
        "descending|swapped|largest",
        "larger = width(select(tokens, tokens, operator.gt))\n"
        "same = width(select(tokens, tokens) & select(indices, indices, operator.lt))\n"
        "place = elementwise(operator.add, larger, same)\n"
        "answer = aggregate(select(place, indices), tokens)",
    ),
    (
        "sort",
        "strict|equal letters",
        "place = width(select(tokens, tokens, operator.le))\n"
        "answer = aggregate(select(place, indices), tokens).otherwise('-')",
    ),
    (
        "sort",
        "itself|strict|off by one",
        "smaller = width(select(tokens, tokens, operator.lt))\n"
        "same = width(select(tokens, tokens) & select(indices, indices, operator.le))\n"
        "place = elementwise(operator.add, smaller, same)\n"
        "answer = aggregate(select(place, indices), tokens).otherwise('-')",
    ),
    (
        "sort",
        "swapped",
        "smaller = width(select(tokens, tokens, operator.lt))\n"
        "same = width(select(tokens, tokens) & select(indices, indices, operator.lt))\n"
        "place = elementwise(operator.add, smaller, same)\n"
        "answer = aggregate(select(indices, place), tokens)",
    ),
    (
        "balanced",
        "order|closed before|below",
        "opened, closed = (width(select(tokens, constant(sign))) for sign in '()')\n"
        "answer = elementwise(operator.eq, opened, closed)",
    ),
    (
        "balanced",
        "swapped|order|direction",
        "opened, closed = (width(select(tokens, constant(sign))) for sign in '()')\n"
        "level = elementwise(operator.eq, opened, closed)\n"
        "below = width(select(elementwise(operator.gt, opened, closed), constant(True)))\n"
        "answer = elementwise(lambda even, n: even and n == 0, level, below)",
    ),
    (
        "balanced",
        "still open|unclosed|never closed",
        "opened, closed = (width(select(tokens, constant(sign))) for sign in '()')\n"
        "below = width(select(elementwise(operator.gt, closed, opened), constant(True)))\n"
        "answer = below.map(lambda n: n == 0)",
    ),
    (
        "balanced",
        "strict",
        "opened, closed = (width(select(tokens, constant(sign))) for sign in '()')\n"
        "level = elementwise(operator.eq, opened, closed)\n"
        "below = width(select(elementwise(operator.ge, closed, opened), constant(True)))\n"
        "answer = elementwise(lambda even, n: even and n == 0, level, below)",
    ),
    (
        "year",
        "fixed",
        "answer = aggregate(select(indices, indices.map(lambda i: i + 4)), tokens).otherwise('-')",
    ),
    (
        "year",
        "off by one",
        "place = elementwise(lambda n, i: n - 1 + i, width(select_all()), indices)\n"
        "answer = aggregate(select(indices, place), tokens).otherwise('-')",
    ),
    (
        "year",
        "own steps|where it stands|at its place",
        "left = elementwise(lambda n, i: n - i, width(select_all()), indices)\n"
        "answer = elementwise(lambda t, n: t if n <= 2 else '-', tokens, left)",
    ),
    (
        "year",
        "no value",
        "place = elementwise(lambda n, i: n - 2 + i, width(select_all()), indices)\n"
        "answer = aggregate(select(indices, place), tokens)",
    ),
    (
        "year",
        "month|first dot|rest",
        "before = width(select(tokens, constant('.')) & select(indices, indices, operator.lt))\n"
        "is_dot = elementwise(lambda t, n: t == '.' and n == 0, tokens, before)\n"
        "dot = aggregate(select(is_dot, constant(True)), indices)\n"
        "place = elementwise(lambda d, i: d + 1 + i, dot, indices)\n"
        "answer = aggregate(select(indices, place), tokens).otherwise('-')",
    ),
    (
        "induction",
        "off by one|match itself|same letter",
        "number = width(select(tokens, tokens))\n"
        "match = select(tokens, tokens) & select(number, number.map(lambda n: n - 1))\n"
        "answer = aggregate(match, tokens).otherwise('-')",
    ),
    (
        "induction",
        "first",
        "before = aggregate(select(indices, indices.map(lambda i: i - 1)), tokens)\n"
        "number = width(select(tokens, tokens))\n"
        "number_before = aggregate(select(indices, indices.map(lambda i: i - 1)), number)\n"
        "match = select(before, tokens) & select(number_before, constant(1))\n"
        "answer = aggregate(match, tokens).otherwise('-')",
    ),
    (
        "induction",
        "no value",
        "before = aggregate(select(indices, indices.map(lambda i: i - 1)), tokens)\n"
        "number = width(select(tokens, tokens))\n"
        "number_before = aggregate(select(indices, indices.map(lambda i: i - 1)), number)\n"
        "match = select(before, tokens) & select(number_before, number.map(lambda n: n - 1))\n"
        "answer = aggregate(match, tokens)",
    ),
    (
        "induction",
        "several steps",
        "before = aggregate(select(indices, indices.map(lambda i: i - 1)), tokens)\n"
        "answer = aggregate(select(before, tokens), tokens).otherwise('-')",
    ),
    (
        "induction",
        "before the match|letter before|precedes",
        "previous = aggregate(select(indices, indices.map(lambda i: i - 1)), tokens)\n"
        "number = width(select(tokens, tokens))\n"
        "match = select(tokens, tokens) & select(number, number.map(lambda n: n - 1))\n"
        "answer = aggregate(match, previous).otherwise('-')",
    ),
]
"""Puzzle, pattern of the message, and code."""

SECOND = [
    (
        "first",
        "last|own|letter",
        ("last = width(select_all()).map(lambda n: n - 1)\nanswer = aggregate(select(indices, last), tokens)"),
    ),
    (
        "first",
        "previous|before",
        "answer = aggregate(select(indices, indices.map(lambda i: max(i - 1, 0))), tokens)",
    ),
    (
        "first",
        "no value",
        "answer = aggregate(select(indices, indices.map(lambda i: i - i if i else None)), tokens)",
    ),
    ("previous", "first", "answer = aggregate(select(indices, constant(0)), tokens)"),
    (
        "previous",
        "steps without a value",
        "answer = aggregate(select(indices, indices.map(lambda i: i - 1)), tokens).otherwise('a')",
    ),
    (
        "previous",
        "own|first step",
        "answer = aggregate(select(indices, indices.map(lambda i: max(0, i - 1))), tokens)",
    ),
    ("count", "off by one|too large", "answer = width(select(tokens, constant('a'))).map(lambda n: n + 1)"),
    (
        "count",
        "too small|off by one|itself",
        "answer = width(select(tokens, constant('a'))).map(lambda n: n - 1 if n else 0)",
    ),
    ("count", "not a|opposite|wrong letter", "answer = width(select(tokens, constant('a'), operator.ne))"),
    ("count", "swap|letter", "answer = width(select(constant('a'), tokens))"),
    ("count", "mean", "answer = average(select(tokens, constant('a')), constant(1))"),
    (
        "repeated",
        "neighbour|two|previous",
        "answer = width(select(tokens, tokens) & select(indices, "
        "indices.map(lambda i: i - 1))).map(lambda n: n > 0)",
    ),
    (
        "repeated",
        "swap|later",
        "answer = width(select(tokens, tokens) & select(indices, indices, lambda q, "
        "k: k < q)).map(lambda n: n > 0)",
    ),
    ("repeated", "letter", "answer = width(select(indices, indices, operator.lt)).map(lambda n: n > 0)"),
    (
        "repeated",
        "off by one|more than",
        "answer = width(select(tokens, tokens) & select(indices, indices, operator.lt)).map(lambda n: n > 1)",
    ),
    (
        "histogram",
        "itself|later|other",
        "answer = width(select(tokens, tokens) & select(indices, indices, operator.ne))",
    ),
    ("histogram", "opposite|different|other", "answer = width(select(tokens, tokens, operator.ne))"),
    ("histogram", "swap|letter|constant|a", "answer = width(select(tokens, constant('a')))"),
    ("reverse", "several", "answer = aggregate(select(indices, indices, operator.gt), tokens)"),
    (
        "reverse",
        "off by one",
        (
            "length = width(select_all())\n"
            "answer = aggregate(select(indices, elementwise(lambda n, i: n - 2 - i, length, indices)), tokens)"
        ),
    ),
    ("reverse", "length|fixed", "answer = aggregate(select(indices, indices.map(lambda i: -1 - i)), tokens)"),
    (
        "rotate",
        "other direction",
        (
            "length = width(select_all())\n"
            "answer = aggregate(select(elementwise(lambda n, i: (i - 1) % n, length, indices), indices), tokens)"
        ),
    ),
    (
        "rotate",
        "no wrap|end|first",
        (
            "length = width(select_all())\n"
            "answer = aggregate(select(indices, indices.map(lambda i: max(i - 1, 0))), tokens)"
        ),
    ),
    (
        "palindrome",
        "opposite|exchang",
        (
            "length = width(select_all())\n"
            "m = elementwise(lambda n, i: n - 1 - i, length, indices)\n"
            "d = elementwise(operator.eq, tokens, aggregate(select(indices, m), tokens))\n"
            "answer = width(select(d, constant(False))).map(bool)"
        ),
    ),
    (
        "palindrome",
        "first and the last|first and last",
        (
            "length = width(select_all())\n"
            "f = aggregate(select(indices, constant(0)), tokens)\n"
            "l = aggregate(select(indices, length.map(lambda n: n - 1)), tokens)\n"
            "answer = elementwise(operator.eq, f, l)"
        ),
    ),
    (
        "palindrome",
        "one|off|strict",
        (
            "length = width(select_all())\n"
            "m = elementwise(lambda n, i: n - 1 - i, length, indices)\n"
            "d = elementwise(operator.ne, tokens, aggregate(select(indices, m), tokens))\n"
            "answer = width(select(d, constant(True))).map(lambda n: n <= 2)"
        ),
    ),
    (
        "sort",
        "equal|tie",
        ("r = width(select(tokens, tokens, operator.gt))\nanswer = aggregate(select(r, indices), tokens)"),
    ),
    (
        "sort",
        "swap|descend|largest|later",
        (
            "s = width(select(tokens, tokens, operator.lt))\n"
            "e = width(select(tokens, tokens) & select(indices, indices, operator.gt))\n"
            "r = elementwise(operator.sub, s, e)\n"
            "answer = aggregate(select(r, indices), tokens)"
        ),
    ),
    (
        "sort",
        "off by one",
        (
            "s = width(select(tokens, tokens, operator.lt))\n"
            "e = width(select(tokens, tokens) & select(indices, indices, operator.lt))\n"
            "r = elementwise(lambda a, b: a + b + 1, s, e)\n"
            "answer = aggregate(select(r, indices), tokens)"
        ),
    ),
    (
        "balanced",
        "opposite|exchang",
        (
            "o = width(select(tokens, constant('(')))\n"
            "c = width(select(tokens, constant(')')))\n"
            "b = width(select(elementwise(operator.gt, c, o), constant(True)))\n"
            "answer = elementwise(lambda d, n: d != 0 or n > 0, elementwise(operator.sub, o, c), b)"
        ),
    ),
    (
        "balanced",
        "order|never",
        (
            "h = average(select_all(), tokens.map(lambda t: 1 if t == '(' else -1))\n"
            "answer = h.map(lambda m: m == 0)"
        ),
    ),
    (
        "year",
        "day|first two|unchanged|own",
        "answer = elementwise(lambda t, i: t if i < 2 else '-', tokens, indices)",
    ),
    (
        "year",
        "off by one",
        (
            "length = width(select_all())\n"
            "answer = aggregate(select(indices, elementwise(lambda n, i: n - 3 + i, length, indices)), "
            "tokens).otherwise('-')"
        ),
    ),
    (
        "year",
        "order|revers",
        (
            "length = width(select_all())\n"
            "answer = aggregate(select(indices, elementwise(lambda n, i: n - 1 - i if i < 2 else None, "
            "length, indices)), tokens).otherwise('-')"
        ),
    ),
    (
        "induction",
        "letter before",
        "answer = aggregate(select(indices, indices.map(lambda i: i - 1)), tokens).otherwise('-')",
    ),
    (
        "induction",
        "several",
        "before = aggregate(select(indices, indices.map(lambda i: i - 1)), tokens)\n"
        "answer = aggregate(select(before, tokens), tokens)",
    ),
    (
        "induction",
        "off by one|two steps|after",
        (
            "n = width(select(tokens, tokens))\n"
            "m = select(tokens, tokens) & select(n, n.map(lambda v: v - 1))\n"
            "p = aggregate(m, indices).map(lambda i: i + 2)\n"
            "answer = aggregate(select(indices, p), tokens).otherwise('-')"
        ),
    ),
]
THIRD = [
    (
        "first",
        "off by one",
        "answer = aggregate(select(indices, indices, lambda k, q: k == 1), tokens).otherwise('-')",
    ),
    ("first", "swap", "answer = aggregate(select(indices, indices, lambda k, q: q == 0), tokens)"),
    ("first", "several", "answer = aggregate(select(indices, constant(0), operator.ge), tokens)"),
    (
        "previous",
        "swap|later|future|no step",
        "answer = aggregate(select(indices, indices, lambda q, k: q == k + 1), tokens).otherwise('-')",
    ),
    (
        "previous",
        "off by one|two",
        (
            "b = indices.map(lambda i: i - 1)\n"
            "answer = aggregate(select(b, b.map(lambda i: i - 2)), tokens).otherwise('-')"
        ),
    ),
    (
        "previous",
        "letters? .*indices|two kinds",
        "answer = aggregate(select(tokens, indices.map(lambda i: i - 1)), tokens).otherwise('-')",
    ),
    (
        "previous",
        "value|indices",
        "answer = aggregate(select(indices, indices.map(lambda i: i - 1)), indices).otherwise('-')",
    ),
    ("count", "wrong letter|other|not a|c", "answer = width(select(tokens, constant('c')))"),
    (
        "count",
        "off by one|too|strict|itself",
        "answer = width(select(tokens, constant('a')) & select(indices, "
        "indices.map(lambda i: i - 1), operator.le))",
    ),
    (
        "count",
        "first|later|too many|left out",
        "answer = width(select(tokens, constant('a')) & select(indices, constant(0)))",
    ),
    ("count", "own", "answer = width(select(tokens, tokens) & select(tokens, constant('a')))"),
    (
        "repeated",
        "condition on the number",
        "answer = width(select(tokens, tokens) & select(indices, indices, operator.lt)).map(lambda n: n == 1)",
    ),
    (
        "repeated",
        "letter",
        "answer = width(select(tokens, constant('a')) & select(indices, indices, "
        "operator.lt)).map(lambda n: n > 0)",
    ),
    (
        "repeated",
        "off by one|strict|far|left out",
        "answer = width(select(tokens, tokens) & select(indices, indices.map(lambda i: i - 1), "
        "operator.lt)).map(lambda n: n > 0)",
    ),
    ("histogram", "left out", "answer = width(select(tokens, tokens) & select(indices, indices, operator.ge))"),
    ("histogram", "opposite|other|smaller|compar", "answer = width(select(tokens, tokens, operator.le))"),
    ("histogram", "too large|off by one", "answer = width(select(tokens, tokens)).map(lambda n: n + 1)"),
    (
        "reverse",
        "order|off|length",
        (
            "n = width(select_all())\n"
            "answer = aggregate(select(indices, elementwise(operator.sub, n, indices)), tokens).otherwise('-')"
        ),
    ),
    (
        "reverse",
        "strict|off by one|itself",
        (
            "after = width(select(indices, indices, operator.ge))\n"
            "answer = aggregate(select(indices, after), tokens)"
        ),
    ),
    (
        "reverse",
        "swap|unchanged|own",
        (
            "before = width(select(indices, indices, operator.lt))\n"
            "answer = aggregate(select(indices, before), tokens)"
        ),
    ),
    (
        "rotate",
        "off by one|unchanged|own",
        (
            "n = width(select_all())\n"
            "answer = aggregate(select(indices, elementwise(lambda n, i: i % n, n, indices)), tokens)"
        ),
    ),
    (
        "rotate",
        "last|first step|wrap|end",
        "answer = aggregate(select(indices, indices.map(lambda i: i - 1 if i else 4)), tokens)",
    ),
    (
        "palindrome",
        "itself|mirror|own|always|same",
        (
            "d = elementwise(operator.ne, tokens, aggregate(select(indices, indices), tokens))\n"
            "answer = width(select(d, constant(True))).map(lambda n: n == 0)"
        ),
    ),
    (
        "palindrome",
        "negat|exchang|opposite",
        (
            "n = width(select_all())\n"
            "m = elementwise(lambda n, i: n - 1 - i, n, indices)\n"
            "d = elementwise(operator.ne, tokens, aggregate(select(indices, m), tokens))\n"
            "answer = width(select(d, constant(False))).map(lambda n: n == 0)"
        ),
    ),
    (
        "sort",
        "equal",
        (
            "s = width(select(tokens, tokens, operator.lt))\n"
            "e = width(select(tokens, tokens))\n"
            "answer = aggregate(select(elementwise(operator.add, s, e), indices), tokens).otherwise('-')"
        ),
    ),
    (
        "sort",
        "equal|strict|off|several",
        (
            "s = width(select(tokens, tokens, operator.le))\n"
            "answer = aggregate(select(s.map(lambda n: n - 1), indices), tokens).otherwise('-')"
        ),
    ),
    (
        "sort",
        "swap|wrong order|rank|place",
        (
            "s = width(select(tokens, tokens, operator.lt))\n"
            "e = width(select(tokens, tokens) & select(indices, indices, operator.lt))\n"
            "answer = elementwise(operator.add, s, e)"
        ),
    ),
    (
        "balanced",
        "order|swap|strict|opposite",
        (
            "o = width(select(tokens, constant('(')))\n"
            "c = width(select(tokens, constant(')')))\n"
            "b = width(select(elementwise(operator.lt, c, o), constant(True)))\n"
            "answer = elementwise(lambda e, n: e and n == 0, elementwise(operator.eq, o, c), b)"
        ),
    ),
    (
        "balanced",
        "negat|opposite|exchang",
        (
            "o = width(select(tokens, constant('(')))\n"
            "c = width(select(tokens, constant(')')))\n"
            "answer = elementwise(operator.ne, o, c)"
        ),
    ),
    (
        "year",
        "no value|blank|value",
        (
            "n = width(select_all())\n"
            "answer = aggregate(select(indices, elementwise(lambda n, i: n - 2 + i, n, indices)), "
            "tokens).otherwise('0')"
        ),
    ),
    (
        "year",
        "order|revers|swap",
        (
            "n = width(select_all())\n"
            "answer = aggregate(select(elementwise(lambda n, i: n - 1 - i, n, indices), indices), tokens)"
        ),
    ),
    (
        "induction",
        "swap|no|future|later",
        (
            "b = aggregate(select(indices, indices.map(lambda i: i + 1)), tokens)\n"
            "n = width(select(tokens, tokens))\n"
            "answer = aggregate(select(b, tokens) & select(n, n.map(lambda v: v - 1)), tokens).otherwise('-')"
        ),
    ),
    ("induction", "own|letter", "answer = aggregate(select(indices, indices), tokens)"),
    (
        "induction",
        "first|number|off",
        (
            "b = select(indices, indices.map(lambda i: i - 1))\n"
            "n = width(select(tokens, tokens))\n"
            "m = select(aggregate(b, tokens), tokens) & select(aggregate(b, n), n)\n"
            "answer = aggregate(m, tokens).otherwise('-')"
        ),
    ),
]
RIGHT = [
    ("first", "answer = aggregate(select(indices.map(lambda i: i + 1), constant(1)), tokens)"),
    ("first", "answer = aggregate(select(indices, indices, lambda k, q: k == 0), tokens)"),
    (
        "previous",
        "answer = aggregate(select(indices.map(lambda i: i + 1), indices), tokens).otherwise('-')",
    ),
    (
        "previous",
        "answer = aggregate(select(indices, indices, lambda k, q: k == q - 1), tokens).otherwise('-')",
    ),
    (
        "count",
        "share = average(select_all(), tokens.map(lambda t: int(t == 'a')))\n"
        "answer = elementwise(lambda mean, n: int(mean * n), share, width(select_all()))",
    ),
    ("count", "answer = width(select(tokens.map(lambda t: t == 'a'), constant(True)))"),
    (
        "repeated",
        "first = select(tokens, tokens) & select(indices, indices, operator.le)\n"
        "answer = width(first).map(lambda n: n != 1)",
    ),
    (
        "repeated",
        "earlier = select(indices, indices, lambda k, q: k < q) & select(tokens, tokens)\n"
        "answer = width(earlier).map(bool)",
    ),
    (
        "histogram",
        "before = width(select(tokens, tokens) & select(indices, indices, operator.lt))\n"
        "after = width(select(tokens, tokens) & select(indices, indices, operator.ge))\n"
        "answer = elementwise(operator.add, before, after)",
    ),
    ("histogram", "answer = width(select(tokens, tokens)).map(str)"),
    (
        "reverse",
        "after = width(select(indices, indices, operator.gt))\n"
        "answer = aggregate(select(indices, after), tokens)",
    ),
    (
        "reverse",
        "after = width(select(indices, indices, operator.gt))\n"
        "answer = aggregate(select(after, indices), tokens)",
    ),
    (
        "rotate",
        "place = elementwise(lambda n, i: n - 1 if i == 0 else i - 1, width(select_all()), indices)\n"
        "answer = aggregate(select(indices, place), tokens)",
    ),
    (
        "rotate",
        "target = elementwise(lambda n, i: (i + 1) % n, width(select_all()), indices)\n"
        "answer = aggregate(select(target, indices), tokens)",
    ),
    (
        "palindrome",
        "end = elementwise(lambda n, i: n - 1 - i, width(select_all()), indices)\n"
        "same = elementwise(operator.eq, aggregate(select(indices, end), tokens), tokens)\n"
        "answer = average(select_all(), same).map(lambda share: share == 1)",
    ),
    (
        "palindrome",
        "end = elementwise(lambda n, i: n - 1 - i, width(select_all()), indices)\n"
        "same = elementwise(lambda a, b: int(a == b), aggregate(select(indices, end), tokens), tokens)\n"
        "answer = elementwise(operator.eq, width(select(same, constant(1))), width(select_all()))",
    ),
    (
        "sort",
        "key = elementwise(lambda t, i: (t, i), tokens, indices)\n"
        "answer = aggregate(select(width(select(key, key, operator.lt)), indices), tokens)",
    ),
    (
        "sort",
        "number = {'a': 0, 'b': 1, 'c': 2}\n"
        "key = elementwise(lambda t, i: 5 * number[t] + i, tokens, indices)\n"
        "place = width(select(key, key, lambda k, q: q > k))\n"
        "answer = aggregate(select(place, indices), tokens)",
    ),
    (
        "balanced",
        "height = average(select_all(), tokens.map(lambda t: 1 if t == '(' else -1))\n"
        "broken = width(select(height, constant(0), operator.lt))\n"
        "answer = elementwise(lambda h, n: h == 0 and n == 0, height, broken)",
    ),
    (
        "balanced",
        "opened, closed = (width(select(tokens, constant(sign))) for sign in '()')\n"
        "level = elementwise(operator.sub, opened, closed)\n"
        "below = width(select(level, constant(0), operator.lt))\n"
        "answer = elementwise(lambda h, n: not h and not n, level, below)",
    ),
    (
        "year",
        "before = width(select(tokens, constant('.')) & select(indices, indices, operator.lt))\n"
        "is_dot = elementwise(lambda t, n: t == '.' and n == 1, tokens, before)\n"
        "dot = aggregate(select(is_dot, constant(True)), indices)\n"
        "place = elementwise(lambda d, i: d + 1 + i, dot, indices)\n"
        "answer = aggregate(select(indices, place), tokens).otherwise('-')",
    ),
    (
        "year",
        "place = elementwise(lambda n, i: n - 2 + i if i < 2 else None, width(select_all()), indices)\n"
        "answer = aggregate(select(indices, place), tokens).otherwise('-')",
    ),
    (
        "induction",
        "number = width(select(tokens, tokens))\n"
        "match = select(tokens, tokens) & select(number, number.map(lambda n: n - 1))\n"
        "place = aggregate(match, indices).map(lambda i: i + 1)\n"
        "answer = aggregate(select(indices, place), tokens).otherwise('-')",
    ),
    (
        "induction",
        "step = elementwise(lambda t, n: (t, n), tokens, width(select(tokens, tokens)))\n"
        "before = aggregate(select(indices, indices.map(lambda i: i - 1)), step)\n"
        "answer = aggregate(select(before, step.map(lambda s: (s[0], s[1] - 1))), tokens).otherwise('-')",
    ),
]
"""Puzzle and code of other right solutions."""
