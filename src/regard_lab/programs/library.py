"""The library of programs. Each is defined for all texts over its alphabet.

>>> PROGRAMS["induction"].answer("abcab")
[None, None, None, 'b', 'c']
>>> PROGRAMS["swap"].write("ab/c")
'c/ab'
"""

import operator
from collections.abc import Mapping
from functools import partial

from regard_lab.programs.language import (
    Expression,
    Program,
    aggregate,
    average,
    constant,
    elementwise,
    indices,
    select,
    select_all,
    steps,
    tokens,
    width,
    written,
)

INDUCTION = "what followed the same symbol before"  # Name of the role in `regard.interpret.roles`


def yes_no(expression: Expression) -> Expression:
    return expression.map(lambda true: "y" if true else "n")


def token_at(index: Expression) -> Expression:
    return aggregate(select(indices, index), tokens)


def number_of(symbol: str) -> Expression:
    """Return how often a symbol occurs; in a decoder-only model, up to each step."""
    return width(select(tokens, constant(symbol)))


def follower(symbol: Expression) -> Expression:
    """Return what followed the last earlier occurrence of a symbol, for a decoder-only model. Occurrences are counted,
    because a head cannot prefer the last of several equal keys."""
    count = width(select(symbol, symbol))
    before, count_before = (aggregate(select(indices, earlier(1)), part) for part in (symbol, count))
    return aggregate(select(before, symbol) & select(count_before, count.map(lambda n: n - 1)), tokens)


def earlier(distance: int) -> Expression:
    return indices.map(lambda index: index - distance)


def place_among(keep: Expression) -> Expression:
    """Return the number of earlier kept steps at kept steps, and None at all other steps."""
    before = width(select(keep, constant(True)) & select(indices, indices, operator.lt))
    return elementwise(lambda kept, number: number if kept else None, keep, before)


length = width(select_all())
mirrored = elementwise(lambda length, index: length - 1 - index, length, indices)
smaller = width(select(tokens, tokens, operator.lt))
equal_before = width(select(tokens, tokens) & select(indices, indices, operator.lt))
rank = elementwise(operator.add, smaller, equal_before)  # Position of each token in ascending order
is_first = equal_before.map(lambda number: number == 0)  # Whether a token occurs for the first time
LONGEST = 6  # Largest number of symbols of an input


def decoder_only_programs() -> list[Program]:
    program = partial(Program, family="decoder-only", longest=LONGEST)
    opened, closed = number_of("("), number_of(")")
    is_level = elementwise(operator.eq, opened, closed)
    negative = width(select(elementwise(operator.gt, closed, opened), constant(True)))
    balanced = elementwise(lambda level, below: level and below == 0, is_level, negative)
    bigram = elementwise(operator.add, token_at(earlier(1)), tokens)
    more = elementwise(lambda a, b: ("a", a) if a >= b else ("b", b), number_of("a"), number_of("b"))
    most = elementwise(lambda best, c: best[0] if best[1] >= c else "c", more, number_of("c"))
    score = average(select_all(), tokens.map(lambda token: {"a": 1, "b": 0, "c": -1}[token]))
    induced = follower(tokens)
    depth = elementwise(lambda o, c: str(o - c) if o >= c else "-", opened, closed)
    same = elementwise(operator.eq, token_at(constant(0)), tokens)
    even = token_at(indices.map(lambda index: index - index % 2))
    is_odd = number_of("a").map(lambda number: number % 2 == 1)
    occurred = width(select(tokens, tokens)).map(lambda number: number > 1)
    sign = score.map(lambda mean: ">" if mean > 0 else "<" if mean < 0 else "=")
    digit = follower(tokens).map(lambda token: token if token.isdigit() else None)
    return [
        program("previous", "the previous token", "abc", token_at(earlier(1))),
        program("skip", "the token two steps before", "abc", token_at(earlier(2))),
        program("first", "the first token", "abc", token_at(constant(0))),
        program("pair-start", "the token at the last even index", "abc", even),
        program("same-as-first", "is it the first token?", "abc", yes_no(same)),
        program("count", "how many a so far", "abc", number_of("a").map(str)),
        program("parity", "is the number of a so far odd?", "ab", yes_no(is_odd)),
        program("repeated", "did the token occur before?", "abcd", yes_no(occurred)),
        program("compare", "more a (>), more c (<) or as many (=) so far", "abc", sign),
        program("most-frequent", "the most frequent token so far", "abc", most),
        program("depth", "number of open parentheses, or -", "()", depth),
        program("balanced", "do all parentheses match?", "()", yes_no(balanced)),
        program("induction", "what followed the same token before", "abcd", induced, roles={induced: INDUCTION}),
        program("lookup", "the digit that followed the same token before", "xy12", digit),
        program("bigram", "what followed the same pair before", "ab", follower(bigram)),
    ]


def encoder_programs() -> list[Program]:
    program = partial(Program, family="encoder", longest=LONGEST)
    several = partial(program, outputs=LONGEST)
    start = constant(0, "output")
    mismatches = width(select(elementwise(operator.ne, tokens, token_at(mirrored)), constant(True)))
    strength = elementwise(lambda number, token: (number, -ord(token)), width(select(tokens, tokens)), tokens)
    stronger = width(select(strength, strength, operator.gt))
    signal = width(select(tokens, token_at(constant(0)))).map(lambda number: number - 1)
    distinct = width(select(is_first, constant(True)))
    last = elementwise(lambda length, index: (index - 1) % length, length, indices)

    def read(expression: Expression, index: Expression = start) -> Expression:
        return aggregate(select(indices, index), expression)

    is_palindrome = mismatches.map(lambda number: number == 0)
    return [
        several("histogram", "how often each token occurs", "abc", read(width(select(tokens, tokens)), steps)),
        several("is-new", "is each token new?", "abc", read(is_first, steps)),
        several("sorted", "the tokens in order", "abc", read_at(rank)),
        several("rotated", "the tokens, the first one last", "abc", read_at(last)),
        program("palindrome", "is the text the same backwards?", "abc", read(is_palindrome)),
        program("majority", "the most frequent token", "abc", aggregate(select(stronger, start), tokens)),
        program("distinct", "the number of different tokens", "abcd", read(distinct)),
        program("signal", "how often the first token recurs", "abc", read(signal)),
    ]


def encoder_decoder_programs() -> list[Program]:
    program = partial(Program, family="encoder-decoder", longest=LONGEST, outputs=LONGEST)
    count = width(select(tokens, constant("a", "output")))
    unary = elementwise(lambda number, step: "a" if step < number else None, count, steps)
    slash = elementwise(lambda token, before: token == "/" and before == 0, tokens, equal_before)
    slash_at = aggregate(select(slash, constant(True)), indices).otherwise(-1)
    swapped = elementwise(lambda place, length: place % length, elementwise(_swap, indices, slash_at), length)
    rotated = elementwise(lambda length, index: (index + 1) % length, length, indices)
    parity = width(select(written, constant("a", "output"))).map(lambda number: str(number % 2))
    copied = elementwise(lambda symbol, digit: symbol or digit, token_at(steps).otherwise(""), parity)
    is_over = elementwise(operator.gt, steps, width(select_all("input", "output")))
    checked = elementwise(lambda symbol, over: None if over else symbol, copied, is_over)
    replaced = aggregate(select(indices, steps), tokens.map(lambda token: "b" if token == "a" else token))
    kept = place_among(tokens.map(lambda token: token != "a"))
    halved = token_at(steps.map(lambda step: step // 2))
    second = token_at(steps.map(lambda step: 2 * step))
    summary, symbols = "the text, then the parity of its number of a", "abc01"
    return [
        program("copy", "the same text", "abc", token_at(steps)),
        program("reverse", "the text backwards", "abc", read_at(mirrored)),
        program("sort", "the tokens in order", "abc", read_at(rank)),
        program("rotate", "the last token first", "abc", read_at(rotated)),
        program("replace", "b in place of a", "abc", replaced),
        program("delete", "the text without a", "abc", read_at(kept)),
        program("unique", "each token once", "abcd", read_at(place_among(is_first))),
        program("alternate", "every second token", "abc", second),
        program("double", "each token twice", "ab", halved, outputs=2 * LONGEST),
        program("unary", "as many a as the text has", "abc", unary),
        program("swap", "the parts around the first slash, swapped", "ab/", read_at(swapped)),
        program("checksum", summary, "abc", checked, symbols=symbols, outputs=LONGEST + 1),
    ]


def read_at(place: Expression) -> Expression:
    return aggregate(select(place, steps), tokens)


def _swap(index: int, slash: int) -> int:
    """Return the new index of a token, modulo the length, if the parts before and after `slash` are swapped."""
    if index == slash:
        return -slash - 1
    return index - slash - 1 if index > slash else index - slash


PROGRAMS: Mapping[str, Program] = {
    program.name: program for program in (*decoder_only_programs(), *encoder_programs(), *encoder_decoder_programs())
}
