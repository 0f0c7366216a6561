"""Extensions of the prefixes of a search by one token, and the controls of a search: how answers begin, how
long they are, what they must contain and must not repeat.

Letters: B sources, K prefixes per source, T steps, V size of the target vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.arguments import Limits, check_fields, public
from regard.data.tokenization import WITHOUT_BLANKS, Span, find_script, is_whole
from regard.data.vocabulary import BOS, EOS, PAD, UNKNOWN, Vocabulary, is_blank
from regard.errors import InputError, plural, shorten

NEVER = (PAD, BOS, UNKNOWN)  # Tokens that never occur in an answer


class Extensions(NamedTuple):
    """The best extensions of the prefixes of a batch by one token."""

    ends: list[tuple[int, int, float]]  # Row, prefix and log-probability of each finished extension
    parents: Tensor  # Index of the prefix of each unfinished extension, (B, K'), the best extension first
    tokens: Tensor  # The added tokens, (B, K')
    totals: Tensor  # Log-probability of each unfinished extension, (B, K')


class Constraints:
    """Constraints on the answers to the sources of a batch. This base class has no constraints."""

    def log_probabilities(self, logits: Tensor, prefixes: Tensor, sources: Sequence[int]) -> Tensor:
        """Return the log-probability (B, K, V) of each token after each prefix, with -inf for forbidden tokens.
        `logits` (B, K, V) may be overwritten. `prefixes` (B, K, T): tokens so far, from `BOS` on. `sources`:
        index in the batch of the source of each row."""
        return log_probabilities(logits)

    def extend(
        self, log_probs: Tensor, prefixes: Tensor, totals: Tensor, sources: Sequence[int], width: int
    ) -> Extensions:
        """Return the best extensions of prefixes with `totals` (B, K) by tokens with `log_probs` (B, K, V)."""
        count, symbols = log_probs.shape[1:]
        # At most one extension of each prefix ends, so the best `2 * width` extensions contain `width` unfinished
        # extensions.
        totals, indices = best_extensions(log_probs, totals, min(2 * width, count * symbols))
        check_finite(totals)  # NaN counts as the largest value
        return select_extensions(totals, indices // symbols, indices % symbols, width, count)


UNCONSTRAINED = Constraints()


def best_extensions(log_probs: Tensor, totals: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest sums (B, count) of `totals` (B, K) and `log_probs` (B, K, V), in descending order,
    and their indices among all K V extensions."""
    return (totals.unsqueeze(-1) + log_probs).flatten(1).topk(count)


def select_extensions(totals: Tensor, parents: Tensor, tokens: Tensor, width: int, prefixes: int) -> Extensions:
    """Return the finished extensions among the first `width`, and the first `width` unfinished extensions. `totals`,
    `parents`, `tokens` (B, M): log-probability, extended prefix and added token of each extension, in the order in
    which they are selected. `prefixes`: number of prefixes, each with at most one finished extension."""
    ending = tokens == EOS
    rows, ranks = (ending & (totals > -torch.inf))[:, :width].nonzero(as_tuple=True)
    ends = zip(rows.tolist(), parents[rows, ranks].tolist(), totals[rows, ranks].tolist(), strict=True)
    # A stable sort puts the finished extensions last, where they are cut off. A beam that is wider than the
    # number of different extensions, of which constraints name some twice, reaches them: they must not go on.
    totals = totals.masked_fill(ending, -torch.inf)
    order = ending.int().argsort(dim=1, stable=True)[:, : min(width, tokens.shape[1] - prefixes)]
    return Extensions(list(ends), parents.gather(1, order), tokens.gather(1, order), totals.gather(1, order))


def log_probabilities(logits: Tensor, never: Sequence[int] = NEVER) -> Tensor:
    """Return log-probabilities (..., V) of logits, at least in float32, with -inf for tokens in `never`. The
    log-probabilities overwrite the logits, which halves the memory in a CPU's caches."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return mask_special_tokens(torch.log_softmax(logits, -1, out=logits), never)


def mask_special_tokens(values: Tensor, never: Sequence[int] = NEVER) -> Tensor:
    """Set logits or log-probabilities (..., V) of tokens in `never` to -inf, in place.

    >>> mask_special_tokens(torch.zeros(5))
    tensor([-inf, -inf, 0., -inf, 0.])
    """
    for token in never:
        values[..., token] = -torch.inf
    return values


def check_finite(values: Tensor) -> None:
    """Raise `InputError` if log-probabilities or logits are NaN or infinite, except for -inf. Such values mean
    that training diverged, or that the parameters are damaged."""
    if not bool((values < torch.inf).all()):
        raise InputError(
            "the model's probabilities are not finite: train again with a lower --lr, or restore the weights"
        )


def impossible() -> InputError:
    return InputError("no target satisfies all constraints of the search: leave out or relax a constraint")


# Terms that must occur in an answer: a beam search that keeps prefixes with few and with many of the terms.
#
# Without special treatment, the best prefixes of a beam rarely contain the terms. Dynamic beam allocation (Post &
# Vilar 2018) therefore divides the beam among banks: bank c contains the prefixes with c tokens of the terms. The
# places of the beam are filled by turns (Hu et al. 2019): first the best prefix of each bank, from the last bank
# to bank 0, then the second best prefix of each bank, and so on. The next tokens of all terms are candidates even
# if they are unlikely. So each step increases the largest number of tokens, until one prefix contains all terms.
#
# Differences from both papers: the number of tokens is computed from the prefix, so terms may overlap, and a
# finished answer leaves the beam. For a source without terms, the search is plain beam search.
#
# Letters: P is the number of terms per source, L the number of tokens per term.

MISSING = -1  # Fills terms up to L tokens. Never equals a token.


class TermProgress(NamedTuple):
    """Occurrences of the terms in prefixes."""

    occurs: Tensor  # Whether each term occurs, (..., P)
    begun: Tensor  # Number of tokens at the end of the prefix with which each term begins, (..., P)
    tokens: Tensor  # Number of tokens of the terms that occur, and of the longest beginning of another term, (...)


class RequiredTerms:
    """Terms that must occur in the answers to the sources of a batch.

    `terms`: for each source a list of terms, each a sequence of tokens.

    >>> terms = RequiredTerms([[[4, 5], [5, 6]]])
    >>> terms.progress(torch.tensor([[[1, 4, 5]]]), [0])
    TermProgress(occurs=tensor([[[ True, False]]]), begun=tensor([[[0, 1]]]), tokens=tensor([[3]]))
    """

    def __init__(self, terms: Sequence[Sequence[Sequence[int]]]) -> None:
        count = max(map(len, terms))
        longest = max((len(term) for source in terms for term in source), default=0)
        self.terms = torch.full((len(terms), count, longest), MISSING)
        for row, source in enumerate(terms):
            for number, term in enumerate(source):
                self.terms[row, number, : len(term)] = torch.tensor(term)
        self.lengths = (self.terms != MISSING).sum(-1)

    def progress(self, prefixes: Tensor, sources: Sequence[int]) -> TermProgress:
        """Return the occurrences of the terms in prefixes (B, K, T); `sources`: the source of each row."""
        terms, lengths = (part[list(sources)].to(prefixes.device) for part in (self.terms, self.lengths))
        occurs = (lengths == 0).unsqueeze(1).expand(-1, prefixes.shape[1], -1)
        begun = torch.zeros_like(occurs, dtype=torch.int64)
        # Whether the first `length` tokens of a term end at each step, (B, K, T, P).
        ends = prefixes.new_ones(*prefixes.shape, terms.shape[1], dtype=torch.bool)
        for length, tokens in enumerate(terms.unbind(-1), start=1):
            before = F.pad(ends[:, :, :-1], (0, 0, 1, 0), value=length == 1)
            ends = before & (prefixes.unsqueeze(-1) == tokens[:, None, None])
            is_whole = (lengths == length).unsqueeze(1)
            occurs = occurs | (is_whole & ends.any(2))
            begun = begun.masked_fill(ends[:, :, -1] & ~is_whole, length)
        begun = begun.masked_fill(occurs, 0)
        return TermProgress(occurs, begun, (occurs * lengths.unsqueeze(1)).sum(-1) + begun.amax(-1))

    def apply(self, scores: Tensor, prefixes: Tensor, sources: Sequence[int]) -> None:
        scores[..., EOS].masked_fill_(~self.progress(prefixes, sources).occurs.all(-1), -torch.inf)

    def extend(
        self, log_probs: Tensor, prefixes: Tensor, totals: Tensor, sources: Sequence[int], width: int
    ) -> Extensions:
        """Return the best extensions of each bank; see `Constraints`."""
        count, symbols = log_probs.shape[1:]
        indices = self._candidates(log_probs, prefixes, totals, sources, width)
        parents, tokens = indices // symbols, indices % symbols
        values = (totals.unsqueeze(-1) + log_probs).flatten(1).gather(1, indices)
        check_finite(values)
        is_copy = F.pad(indices[:, 1:] == indices[:, :-1], (1, 0))
        values = values.masked_fill(is_copy, -torch.inf)
        values, order = values.sort(dim=1, descending=True, stable=True)
        parents, tokens = parents.gather(1, order), tokens.gather(1, order)
        order = _by_turns(self._banks(prefixes, parents, tokens, sources), values == -torch.inf)
        values, parents, tokens = (part.gather(1, order) for part in (values, parents, tokens))
        ends, parents, tokens, values = select_extensions(values, parents, tokens, width, count)
        # Prefixes with all terms come first, because the search returns the first ones at the length limit.
        banks = self._banks(prefixes, parents, tokens, sources).masked_fill(values == -torch.inf, -1)
        order = values.argsort(dim=1, descending=True, stable=True)
        order = order.gather(1, banks.gather(1, order).argsort(dim=1, descending=True, stable=True))
        return Extensions(ends, parents.gather(1, order), tokens.gather(1, order), values.gather(1, order))

    def _banks(self, prefixes: Tensor, parents: Tensor, tokens: Tensor, sources: Sequence[int]) -> Tensor:
        """Return the bank (B, M) of each extension: the number of tokens of the terms that it contains."""
        before = prefixes.gather(1, parents.unsqueeze(-1).expand(-1, -1, prefixes.shape[-1]))
        # The end of sequence does not change the bank, because an ended prefix contains all terms.
        return self.progress(torch.cat([before, tokens.unsqueeze(-1)], dim=-1), sources).tokens

    def _candidates(
        self, log_probs: Tensor, prefixes: Tensor, totals: Tensor, sources: Sequence[int], width: int
    ) -> Tensor:
        """Return the indices (B, M) of candidates among all K V extensions, in ascending order, with
        repetitions. Candidates: the best extensions, the best extension of each prefix, and the next token of
        each term that does not occur in a prefix."""
        count, symbols = log_probs.shape[1:]
        _, best = best_extensions(log_probs, totals, min(2 * width, count * symbols))
        progress = self.progress(prefixes, sources)
        terms = self.terms[list(sources)].to(prefixes.device).unsqueeze(1).expand(-1, count, -1, -1)
        position = progress.begun.clamp_max(terms.shape[-1] - 1).unsqueeze(-1)
        following = terms.gather(-1, position).squeeze(-1)
        likeliest = log_probs.argmax(-1, keepdim=True)
        following = torch.where(progress.occurs, likeliest, following)
        begin = torch.arange(count, device=prefixes.device).mul(symbols).unsqueeze(-1)
        more = torch.cat([likeliest, following], dim=-1) + begin
        return torch.cat([best, more.flatten(1)], dim=1).sort(dim=1).values


def _by_turns(bank: Tensor, impossible: Tensor) -> Tensor:
    """Return the order (B, M) of extensions that takes one extension of each bank by turns, the last bank first.

    `bank` (B, M): bank of each extension, the most likely extension first. Impossible extensions come last.

    >>> _by_turns(torch.tensor([[0, 0, 0, 2]]), torch.zeros(1, 4, dtype=torch.bool))
    tensor([[3, 0, 1, 2]])
    """
    same_bank = bank.unsqueeze(2) == bank.unsqueeze(1)
    turn = (same_bank.tril(-1) & ~impossible.unsqueeze(1)).sum(2)
    banks = int(bank.max()) + 1
    key = (turn * banks - bank).masked_fill(impossible, bank.shape[1] * banks + 1)
    return key.argsort(dim=1, stable=True)


# Rules for the next token of an answer: one function per option, applied before the best extensions are chosen.
# | option of `Controls` | function              | when           | effect                                   |
# |----------------------|-----------------------|----------------|------------------------------------------|
# | `repetition_penalty` | `penalize_repetition` | before softmax | makes tokens of the prefix less likely   |
# | `min_length`         | `forbid_early_end`    | after softmax  | forbids an early end of sequence         |
# | `no_repeat_ngram`    | `forbid_repetition`   | after softmax  | forbids tokens that repeat an n-gram     |
# | `terms`, `glossary`  | `RequiredTerms`       | after softmax  | forbids the end before all terms         |
# | `prefix`             | `Rules`               | last           | forbids all but the prefix's next token  |
#
# Forbidden tokens have log-probability -inf, and the other tokens keep their log-probability: the search finds
# the target that the model considers most likely among the targets that satisfy the rules.

Rule = Callable[[Tensor, Tensor, Sequence[int]], None]
"""Changes scores (B, K, V) of the next tokens in place: logits, or log-probabilities after the softmax. The arguments
are the scores, the tokens so far from `BOS` on, (B, K, T), and the index in the batch of the source of each row."""


def penalize_repetition(penalty: float, scores: Tensor, prefixes: Tensor, sources: Sequence[int]) -> None:
    """Divide positive logits of the tokens that occur in the prefix by `penalty`, and multiply negative logits by it
    (Keskar et al. 2019, section 4.1, who divide all logits, which makes tokens with negative logits more likely).

    >>> logits = torch.tensor([[[2.0, -2.0, 1.0]]])
    >>> penalize_repetition(2.0, logits, torch.tensor([[[9, 0, 1]]]), [0])
    >>> logits
    tensor([[[ 1., -4.,  1.]]])
    """
    tokens = prefixes[..., 1:]
    values = scores.gather(-1, tokens)
    scores.scatter_(-1, tokens, torch.where(values > 0, values / penalty, values * penalty))


def forbid_early_end(length: int, scores: Tensor, prefixes: Tensor, sources: Sequence[int]) -> None:
    if prefixes.shape[-1] - 1 < length:
        scores[..., EOS] = -torch.inf


def forbid_repetition(size: int, scores: Tensor, prefixes: Tensor, sources: Sequence[int]) -> None:
    """Forbid tokens after which an n-gram of `size` tokens occurs twice (Paulus et al. 2018, section 2.5).

    >>> log_probs = torch.zeros(1, 1, 7)
    >>> forbid_repetition(2, log_probs, torch.tensor([[[1, 4, 5, 4]]]), [0])
    >>> log_probs
    tensor([[[0., 0., 0., 0., 0., -inf, 0.]]])
    """
    if prefixes.shape[-1] <= size:
        return
    ngrams = prefixes[..., 1:].unfold(-1, size, 1)  # (B, K, N, size)
    begin = prefixes[..., prefixes.shape[-1] - size + 1 :]  # the last size - 1 tokens
    repeats = (ngrams[..., :-1] == begin.unsqueeze(-2)).all(-1)
    # A sum, because several n-grams may have the same last token, and only some of them repeat.
    bans = torch.zeros_like(scores[..., :1]).masked_fill(repeats, -torch.inf)
    scores.scatter_add_(-1, ngrams[..., -1], bans)


@dataclass(frozen=True)
class Rules(Constraints):
    """The rules for the sources of a batch."""

    penalties: Sequence[Rule]  # Rules that change logits
    bans: Sequence[Rule]  # Rules that change log-probabilities
    prefixes: Sequence[Sequence[int]]  # Tokens with which the answer to each source begins, or an empty sequence
    terms: RequiredTerms | None  # Terms that must occur
    never: Sequence[int]  # Tokens that never occur in an answer

    def log_probabilities(self, logits: Tensor, prefixes: Tensor, sources: Sequence[int]) -> Tensor:
        time = prefixes.shape[-1] - 1
        begun = [row for row, source in enumerate(sources) if time < len(self.prefixes[source])]
        rows = torch.tensor(begun, device=logits.device, dtype=torch.int64)
        forced = torch.tensor([self.prefixes[sources[row]][time] for row in begun], device=logits.device)
        # The rules do not apply to forced tokens, which are not a choice of the search.
        forced_log_probs = log_probabilities(logits[rows]).take_along_dim(forced[:, None, None], -1) if begun else None
        for rule in self.penalties:
            rule(logits, prefixes, sources)
        log_probs = log_probabilities(logits, self.never)
        for rule in self.bans:
            rule(log_probs, prefixes, sources)
        if forced_log_probs is not None:
            log_probs[rows] = -torch.inf
            log_probs[rows, :, forced] = forced_log_probs.squeeze(-1)
        return log_probs

    def extend(
        self, log_probs: Tensor, prefixes: Tensor, totals: Tensor, sources: Sequence[int], width: int
    ) -> Extensions:
        if self.terms is None:
            return super().extend(log_probs, prefixes, totals, sources, width)
        return self.terms.extend(log_probs, prefixes, totals, sources, width)


LARGEST_REPETITION_PENALTY = 100
LONGEST_SHOWN = 20  # Maximum number of characters of a text in an error message


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
    """Maximum length of an answer in tokens. Default: twice the length of its source, plus 50."""
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
            raise InputError(f"{len(prefixes)} prefixes for {plural(count, 'text')}: give one prefix for each text")
        return prefixes

    def missing(self, text: str, tokens: Sequence[int], vocabulary: Vocabulary) -> list[str]:
        """Return the terms of a text that do not occur in the tokens of an answer."""
        answer, missing = vocabulary.decode(tokens), []
        for term in dict.fromkeys([*self.terms, *(term for _, term in self.translations(text))]):
            dense = find_script(term[0]) in WITHOUT_BLANKS
            if dense and vocabulary.decode(vocabulary.encode(term)) in answer:
                continue
            encoded = encode_constraint("term", term, vocabulary)
            if not any(list(tokens[i : i + len(encoded)]) == encoded for i in range(len(tokens))):
                missing.append(term)
        return missing

    def translations(self, text: str) -> list[tuple[Span, str]]:
        """Return the span of each of the glossary's terms in a text, with its translation."""
        if not self.glossary:
            return []
        found, position = list[tuple[Span, str]](), 0
        for begin in range(len(text)):
            for end in (begin + length for length in self._lengths if position <= begin <= len(text) - length):
                if (term := text[begin:end]) in self.glossary and is_whole(text, begin, end):
                    found.append(((begin, end), self.glossary[term]))
                    position = end
                    break
        return found

    @cached_property
    def _lengths(self) -> list[int]:
        """The lengths of the terms, the longest first. Trying each term at each character of a text takes longer."""
        return sorted(set(map(len, self.glossary)), reverse=True)


class Requirement(NamedTuple):
    """What the controls require of the target of a text."""

    prefix: list[int]  # Tokens with which the target begins
    terms: list[list[int]]  # Terms that the target contains, each as tokens
    limit: int  # Maximum length in tokens, without the end of sequence


def encode_constraint(kind: str, text: str, vocabulary: Vocabulary) -> list[int]:
    """Return the tokens of a prefix or a term."""
    if is_blank(text):
        raise InputError(f"{kind} {text!r} is blank: leave it out")
    tokens = vocabulary.encode(text)
    if UNKNOWN in tokens:
        raise InputError(
            f"{kind} {shorten(text)} has {vocabulary.unit} not seen in training: "
            f"{' '.join(map(repr, vocabulary.unknown(text)))}: choose another {kind}"
        )
    if kind == "term" and find_script(text.strip()[0]) in WITHOUT_BLANKS:
        # Without the space that begins the first token of a text.
        text = f"\N{REPLACEMENT CHARACTER}{text.strip()}"
        spans = zip(vocabulary.encode(text), vocabulary.offsets(text), strict=True)
        tokens = [token for token, (begin, _) in spans if begin] or tokens
    return tokens


def find_requirements(
    controls: Controls, texts: Sequence[str], limits: Sequence[int], vocabulary: Vocabulary, max_len: int
) -> list[Requirement]:
    """Return the prefix, the terms and the length limit of the target of each text. `limits`: largest number of tokens
    of each target without constraints. Limits grow by the number of tokens that the constraints need, up to `max_len`.
    `vocabulary`: target vocabulary."""
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
    penalties: list[Rule] = []
    bans: list[Rule] = []
    if controls.repetition_penalty != 1:
        penalties.append(partial(penalize_repetition, controls.repetition_penalty))
    if controls.min_length:
        bans.append(partial(forbid_early_end, controls.min_length))
    if controls.no_repeat_ngram:
        bans.append(partial(forbid_repetition, controls.no_repeat_ngram))
    terms = None
    if any(requirement.terms for requirement in requirements):
        terms = RequiredTerms([requirement.terms for requirement in requirements])
        bans.append(terms.apply)
    prefixes = [requirement.prefix for requirement in requirements]
    if not (penalties or bans or any(prefixes) or controls.replace_unknown):
        return UNCONSTRAINED
    return Rules(penalties, bans, prefixes, terms, controls.never)
