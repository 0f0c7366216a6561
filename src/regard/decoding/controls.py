"""Controls of a search: how answers begin, how long they are, what they must contain and must not repeat."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Annotated, NamedTuple

from regard.arguments import Limits, check_fields, public
from regard.data.tokenization import WITHOUT_BLANKS, Span, find_script, is_whole
from regard.data.vocabulary import BOS, PAD, UNKNOWN, Vocabulary, is_blank
from regard.decoding.extensions import NEVER, UNCONSTRAINED, Constraints
from regard.decoding.required_terms import RequiredTerms
from regard.decoding.rules import MinLength, NoRepeatNgram, RepetitionPenalty, Rule, Rules
from regard.errors import InputError, plural, shorten

LARGEST_REPETITION_PENALTY = 100
LONGEST_SHOWN = 20
"""Maximum number of characters of a text in an error message."""


@public
@dataclass(frozen=True, kw_only=True)
class Controls:
    """Constraints on the answers of a search. By default, answers are not constrained.

    >>> Controls(min_length=3, max_length=2)
    Traceback (most recent call last):
    regard.errors.InputError: min_length 3 exceeds max_length 2: lower min_length, or raise max_length
    """

    prefix: str | Sequence[str] = ""
    """Text with which each answer begins: one text for all answers, or a text for each answer. It may end within
    a word. An empty text is no constraint."""
    min_length: Annotated[int, Limits(0, 10**6)] = 0
    """Minimum length of an answer in tokens, without the end of sequence."""
    max_length: Annotated[int, Limits(1, 10**6)] | None = None
    """Maximum length of an answer in tokens. None: twice the length of its source, plus 50."""
    no_repeat_ngram: Annotated[int, Limits(0, 10**6)] = 0
    """Size in tokens of the n-grams that occur at most once in an answer, apart from its prefix (Paulus et al.
    2018); 0: no limit."""
    repetition_penalty: Annotated[float, Limits(1, LARGEST_REPETITION_PENALTY)] = 1.0
    """Penalty for tokens that an answer already contains (Keskar et al. 2019). Divides positive logits, and
    multiplies negative logits; 1: no penalty."""
    terms: Sequence[str] = ()
    """Terms that each answer must contain. Needs a beam of at least 2."""
    glossary: Mapping[str, str] = field(default_factory=dict)
    """Terms of the source with their translations. An answer must contain the translation of each term that its
    source contains as whole words; of overlapping terms, the first and longest counts."""
    replace_unknown: bool = False
    """Allow the unknown symbol in answers, and replace each word that contains it by the source word to which it
    is aligned."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.max_length is not None and self.min_length > self.max_length:
            raise InputError(
                f"min_length {self.min_length} exceeds max_length {self.max_length}: lower min_length, or "
                "raise max_length"
            )

    @property
    def never(self) -> tuple[int, ...]:
        """Tokens that never occur in an answer."""
        return (PAD, BOS) if self.replace_unknown else NEVER

    def select(self, indices: Sequence[int], count: int) -> "Controls":
        """Return the controls for the texts at some indices of `count` texts."""
        if isinstance(self.prefix, str):
            return self
        prefixes = self.prefixes(count)
        return replace(self, prefix=[prefixes[index] for index in indices])

    def prefixes(self, count: int) -> Sequence[str]:
        """Return the prefix of each of `count` texts. Raises `InputError` for another number of prefixes."""
        prefixes = [self.prefix] * count if isinstance(self.prefix, str) else self.prefix
        if len(prefixes) != count:
            raise InputError(
                f"{len(prefixes)} prefixes for {plural(count, 'text')}: give one prefix for each text"
            )
        return prefixes

    def missing(self, text: str, tokens: Sequence[int], vocabulary: Vocabulary) -> list[str]:
        """Return the terms of a text that do not occur in the tokens of an answer."""
        required = dict.fromkeys([*self.terms, *(term for _, term in self.translations(text))])
        answer, dense = (
            vocabulary.decode(tokens),
            [term for term in required if find_script(term[0]) in WITHOUT_BLANKS],
        )
        within = {term for term in dense if vocabulary.decode(vocabulary.encode(term)) in answer}
        lacking = [term for term in required if term not in within]
        return [term for term in lacking if not _contains(tokens, encode_constraint("term", term, vocabulary))]

    def translations(self, text: str) -> list[tuple[Span, str]]:
        """Return the span of each of the glossary's terms in a text, with its translation."""
        if not self.glossary:
            return []
        found, position = list[tuple[Span, str]](), 0
        for begin in range(len(text)):
            for term in self._terms.get(text[begin], ()) if begin >= position else ():
                end = begin + len(term)
                if text.startswith(term, begin) and is_whole(text, begin, end):
                    found.append(((begin, end), self.glossary[term]))
                    position = end
                    break
        return found

    # One list of all terms would try each term at each word of a text.
    @cached_property
    def _terms(self) -> dict[str, list[str]]:
        """The terms of the glossary by their first character, the longest first."""
        terms: dict[str, list[str]] = {}
        for term in sorted(self.glossary, key=len, reverse=True):
            terms.setdefault(term[0], []).append(term)
        return terms


class Requirement(NamedTuple):
    """What the controls require of the target of a text."""

    prefix: list[int]
    """Tokens with which the target begins."""
    terms: list[list[int]]
    """Terms that the target contains, each as tokens."""
    limit: int
    """Maximum length in tokens, without the end of sequence."""


def _contains(tokens: Sequence[int], term: Sequence[int]) -> bool:
    return any(list(tokens[begin : begin + len(term)]) == list(term) for begin in range(len(tokens)))


def encode_constraint(kind: str, text: str, vocabulary: Vocabulary) -> list[int]:
    """Return the tokens of a prefix or a term. Raises `InputError` for a blank text and for unknown symbols."""
    if is_blank(text):
        raise InputError(f"{kind} {text!r} is blank: leave it out")
    tokens = vocabulary.encode(text)
    if UNKNOWN in tokens:
        raise InputError(
            f"{kind} {shorten(text)} has {vocabulary.unit} not seen in training: "
            f"{' '.join(map(repr, vocabulary.unknown(text)))}: choose another {kind}"
        )
    if (
        kind == "term" and find_script(text.strip()[0]) in WITHOUT_BLANKS
    ):  # without the space that begins the first token of a text
        text = f"\N{REPLACEMENT CHARACTER}{text.strip()}"
        spans = zip(vocabulary.encode(text), vocabulary.offsets(text), strict=True)
        tokens = [token for token, (begin, _) in spans if begin] or tokens
    return tokens


def find_requirements(
    controls: Controls, texts: Sequence[str], limits: Sequence[int], vocabulary: Vocabulary, max_len: int
) -> list[Requirement]:
    """Return the prefix, the terms and the length limit of the target of each text.

    `limits`: largest number of tokens of each target without constraints. Limits grow by the number of
    tokens that the constraints need, up to `max_len`. `vocabulary`: target vocabulary. Raises `InputError`
    for unknown symbols in prefixes and terms, and for a target that would be too long.
    """
    prefixes = controls.prefixes(len(texts))
    encode = cache(partial(encode_constraint, vocabulary=vocabulary))  # many texts share prefixes and terms
    requirements = []
    for text, limit, prefix in zip(texts, limits, prefixes, strict=True):
        tokens = [] if is_blank(prefix) else encode("prefix", prefix)
        terms = dict.fromkeys([*controls.terms, *(term for _, term in controls.translations(text))])
        encoded_terms = [encode("term", term) for term in terms]
        needed = max(controls.min_length, len(tokens) + sum(map(len, encoded_terms)))
        limit = min(limit + needed, max_len, controls.max_length or max_len)
        if needed > limit:
            raise InputError(
                f"the constraints of text {shorten(text, LONGEST_SHOWN)} need {plural(needed, 'token')}, but an "
                f"answer has at most {limit}: give a lower min_length, a shorter prefix or fewer terms, or raise "
                "max_length"
            )
        requirements.append(Requirement(tokens, encoded_terms, limit))
    return requirements


def make_constraints(controls: Controls, requirements: Sequence[Requirement]) -> Constraints:
    """Return the constraints of a search for the answers of a batch."""
    penalties: list[Rule] = []
    bans: list[Rule] = []
    if controls.repetition_penalty != 1:
        penalties.append(RepetitionPenalty(controls.repetition_penalty))
    if controls.min_length:
        bans.append(MinLength(controls.min_length))
    if controls.no_repeat_ngram:
        bans.append(NoRepeatNgram(controls.no_repeat_ngram))
    terms = [requirement.terms for requirement in requirements]
    prefixes = [requirement.prefix for requirement in requirements]
    if not (penalties or bans or any(terms) or any(prefixes) or controls.replace_unknown):
        return UNCONSTRAINED
    return Rules(
        penalties=penalties,
        bans=bans,
        prefixes=prefixes,
        terms=RequiredTerms(terms) if any(terms) else None,
        never=controls.never,
    )
