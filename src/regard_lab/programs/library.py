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
from regard_lab.programs.program import Program

INDUCTION = "what followed the same symbol before"
"""Name of the role in `regard.interpret.roles`."""


def yes_no(expression: Expression) -> Expression:
    """Return "y" and "n" in place of True and False."""
    return expression.map(lambda true: "y" if true else "n")


def token_at(index: Expression) -> Expression:
    return aggregate(select(indices, index), tokens)


def number_of(symbol: str) -> Expression:
    """Return how often a symbol occurs; in a decoder-only model, up to each step."""
    return width(select(tokens, constant(symbol)))


def follower(symbol: Expression) -> Expression:
    """Return what followed the last earlier occurrence of a symbol, for a decoder-only model.

    A head cannot prefer the last of several equal keys. The occurrences of each symbol are therefore counted, and
    the head selects the step after the occurrence before the present one.
    """
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
rank = elementwise(operator.add, smaller, equal_before)
"""Position of each token in ascending order."""
is_first = equal_before.map(lambda number: number == 0)
"""Whether a token occurs for the first time."""
LONGEST = 6
"""Largest number of symbols of an input."""


def decoder_only_programs() -> list[Program]:
    """Return programs for decoder-only models."""
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
    return [
        program(name="previous", summary="the previous token", alphabet="abc", result=token_at(earlier(1))),
        program(name="skip", summary="the token two steps before", alphabet="abc", result=token_at(earlier(2))),
        program(name="first", summary="the first token", alphabet="abc", result=token_at(constant(0))),
        program(
            name="pair-start",
            summary="the token at the last even index",
            alphabet="abc",
            result=token_at(indices.map(lambda index: index - index % 2)),
        ),
        program(name="same-as-first", summary="is it the first token?", alphabet="abc", result=yes_no(same)),
        program(name="count", summary="how many a so far", alphabet="abc", result=number_of("a").map(str)),
        program(
            name="parity",
            summary="is the number of a so far odd?",
            alphabet="ab",
            result=yes_no(number_of("a").map(lambda number: number % 2 == 1)),
        ),
        program(
            name="repeated",
            summary="did the token occur before?",
            alphabet="abcd",
            result=yes_no(width(select(tokens, tokens)).map(lambda number: number > 1)),
        ),
        program(
            name="compare",
            summary="more a (>), more c (<) or as many (=) so far",
            alphabet="abc",
            result=score.map(lambda mean: ">" if mean > 0 else "<" if mean < 0 else "="),
        ),
        program(name="most-frequent", summary="the most frequent token so far", alphabet="abc", result=most),
        program(name="depth", summary="number of open parentheses, or -", alphabet="()", result=depth),
        program(name="balanced", summary="do all parentheses match?", alphabet="()", result=yes_no(balanced)),
        program(
            name="induction",
            summary="what followed the same token before",
            alphabet="abcd",
            result=induced,
            roles={induced: INDUCTION},
        ),
        program(
            name="lookup",
            summary="the digit that followed the same token before",
            alphabet="xy12",
            result=follower(tokens).map(lambda token: token if token.isdigit() else None),
        ),
        program(
            name="bigram", summary="what followed the same pair before", alphabet="ab", result=follower(bigram)
        ),
    ]


def encoder_programs() -> list[Program]:
    """Return programs for encoders, whose output steps read their answers from the input steps."""
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

    return [
        several(
            name="histogram",
            summary="how often each token occurs",
            alphabet="abc",
            result=read(width(select(tokens, tokens)), steps),
        ),
        several(name="is-new", summary="is each token new?", alphabet="abc", result=read(is_first, steps)),
        several(name="sorted", summary="the tokens in order", alphabet="abc", result=read_at(rank)),
        several(name="rotated", summary="the tokens, the first one last", alphabet="abc", result=read_at(last)),
        program(
            name="palindrome",
            summary="is the text the same backwards?",
            alphabet="abc",
            result=read(mismatches.map(lambda number: number == 0)),
        ),
        program(
            name="majority",
            summary="the most frequent token",
            alphabet="abc",
            result=aggregate(select(stronger, start), tokens),
        ),
        program(
            name="distinct", summary="the number of different tokens", alphabet="abcd", result=read(distinct)
        ),
        program(name="signal", summary="how often the first token recurs", alphabet="abc", result=read(signal)),
    ]


def encoder_decoder_programs() -> list[Program]:
    """Return programs for encoder-decoders, which write their answers step by step."""
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
    return [
        program(name="copy", summary="the same text", alphabet="abc", result=token_at(steps)),
        program(name="reverse", summary="the text backwards", alphabet="abc", result=read_at(mirrored)),
        program(name="sort", summary="the tokens in order", alphabet="abc", result=read_at(rank)),
        program(name="rotate", summary="the last token first", alphabet="abc", result=read_at(rotated)),
        program(name="replace", summary="b in place of a", alphabet="abc", result=replaced),
        program(name="delete", summary="the text without a", alphabet="abc", result=read_at(kept)),
        program(name="unique", summary="each token once", alphabet="abcd", result=read_at(place_among(is_first))),
        program(
            name="alternate",
            summary="every second token",
            alphabet="abc",
            result=token_at(steps.map(lambda step: 2 * step)),
        ),
        program(name="double", summary="each token twice", alphabet="ab", outputs=2 * LONGEST, result=halved),
        program(name="unary", summary="as many a as the text has", alphabet="abc", result=unary),
        program(
            name="swap",
            summary="the parts around the first slash, swapped",
            alphabet="ab/",
            result=read_at(swapped),
        ),
        program(
            name="checksum",
            summary="the text, then the parity of its number of a",
            alphabet="abc",
            symbols="abc01",
            outputs=LONGEST + 1,
            result=checked,
        ),
    ]


def read_at(place: Expression) -> Expression:
    return aggregate(select(place, steps), tokens)


def _swap(index: int, slash: int) -> int:
    """Return the new index of a token, modulo the length, if the parts before and after `slash` are swapped."""
    if index == slash:
        return -slash - 1
    return index - slash - 1 if index > slash else index - slash


PROGRAMS: Mapping[str, Program] = {
    program.name: program
    for program in (*decoder_only_programs(), *encoder_programs(), *encoder_decoder_programs())
}
