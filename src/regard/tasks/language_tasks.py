"""The synthetic tasks for language models: induction, recall, modular addition, regression, copying, parity, brackets.

The papers on which the tasks are based stand with each task.
"""

import hashlib
import math
import string
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import torch
from torch import Tensor

from regard.arguments import Limits
from regard.errors import InputError, check_range, plural, shorten
from regard.streams import make_generator
from regard.tasks.base import TaskOptions
from regard.tasks.batch import IGNORE, BatchContext, BatchSettings, TokenBatch
from regard.tasks.tokens import LookupTask, TokenBatches, TokenTask, earlier_equal, mark_positions

SYMBOLS = string.ascii_uppercase + string.ascii_lowercase + string.digits


@dataclass(frozen=True, kw_only=True)
class InductionTaskConfig(TaskOptions):
    """Size of the task."""

    max_len: int = 24
    """Number of tokens in a sequence: distinct tokens, then the repetition."""
    repeated: int = 8
    """Number of tokens at the end that repeat earlier tokens, in the same order (2 or more)."""
    vocab_size: Annotated[int, Limits(4, len(SYMBOLS))] = 20
    """Number of different tokens (4 to 62)."""

    def check_sizes(self) -> None:
        check_range("repeated", self.repeated, 2, self.vocab_size)
        check_range("max_len", self.max_len, 2 * self.repeated, self.vocab_size + self.repeated)


class Induction(LookupTask):
    """Distinct tokens, then `repeated` of these tokens again, starting at a random position: in "CADBFEDBF",
    "DBF" is repeated (Olsson et al. 2022, "In-context Learning and Induction Heads").

    A model with two attention layers learns the task with a previous-token head in the first layer and an induction
    head in the second. A model with one layer cannot learn the task. The answer is the token after the earlier
    occurrence of the current token. The start of the repetition is random, so the distance between both occurrences
    varies, and the answer cannot be found from positions alone. The answer depends on the current token, its last
    earlier occurrence, and the token after that occurrence.
    """

    name = "induction"
    summary = "random tokens, then a repetition: what comes next?"
    config_class = InductionTaskConfig
    defaults = {"feed_forward": False, "steps": 1300, "lr": 0.003}

    def __init__(self, config: InductionTaskConfig | None = None) -> None:
        super().__init__(config)
        self.vocabulary = SYMBOLS[: self.config.vocab_size]

    @property
    def lengths(self) -> range:
        return range(2 * self.config.repeated, self.config.max_len + 1)

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        del unseen  # training draws a negligible fraction of all sequences
        batch, repeated = len(lengths), self.config.repeated
        tokens = torch.rand(batch, len(self.vocabulary), generator=generator).argsort(1)
        different = lengths[:, None] - repeated
        begin = (torch.rand(batch, 1, generator=generator) * (different - repeated + 1)).long()
        positions = torch.arange(int(lengths.max()))
        repeats = (begin + positions - different).clamp(0, len(self.vocabulary) - 1)
        return tokens.gather(1, torch.where(positions < different, positions.expand(batch, -1), repeats))

    def sources(self, inputs: Tensor) -> tuple[list[Tensor], Tensor]:
        earlier = earlier_equal(inputs)
        current = torch.arange(inputs.shape[1], device=inputs.device).expand_as(inputs)
        return [current, earlier, earlier + 1], earlier >= 0


NOISE, SEPARATOR = ".", "|"
POWER = 0.01
"""Exponent of the distance's distribution: a distance of j slots has a probability proportional to j ** -0.99."""


@dataclass(frozen=True, kw_only=True)
class MqarTaskConfig(TaskOptions):
    """Size of the task."""

    max_len: int = 48
    """Number of tokens in a sequence: pairs, then queries and noise; at least 4 times the number of pairs."""
    pairs: int = 8
    """Number of key-value pairs, each queried once."""
    vocab_size: Annotated[int, Limits(2, 100_000)] = 64
    """Number of tokens without noise (even): the first half are keys, the second half are values."""

    def check_sizes(self) -> None:
        check_range("pairs", self.pairs, 1, self.vocab_size // 2)
        check_range("max_len", self.max_len, 4 * self.pairs, 10_000)


class Mqar(LookupTask):
    """Multi-query associative recall: pairs of a key and a value, then the keys again among noise, such as
    "k3 v5 k1 v2 . . k1 . k3" with the answers v2 and v5 (Arora et al. 2023, "Zoology: Measuring and Improving
    Recall in Efficient Language Models").

    As there, the distance from the end of the pairs to a query follows a power law, and noise follows each query.
    If the value is the next input instead, a model can exclude the values of earlier queries: with 8 pairs, a
    model stayed at 37 % correct outputs. The answer to a query depends on the query, on the first occurrence of
    its key, and on the value after that.
    """

    name = "mqar"
    summary = "key-value pairs, then keys again: what are their values?"
    config_class = MqarTaskConfig
    # With feed-forward layers, 64 tokens and 128 symbols, 2000 steps leave the model at 19 % correct outputs.
    defaults = {"feed_forward": False, "steps": 2000, "lr": 0.005}

    def __init__(self, config: MqarTaskConfig | None = None) -> None:
        super().__init__(config)
        self.keys = self.config.vocab_size // 2
        keys, values = ([f"{letter}{number}" for number in range(1, self.keys + 1)] for letter in "kv")
        self.vocabulary = [NOISE, *keys, *values]

    @property
    def lengths(self) -> range:
        return range(4 * self.config.pairs, self.config.max_len + 1)

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        del unseen  # training draws a negligible fraction of all sequences
        batch, pairs = len(lengths), self.config.pairs
        keys = 1 + torch.rand(batch, self.keys, generator=generator).argsort(1)[:, :pairs]
        values = 1 + self.keys + torch.randint(self.keys, (batch, pairs), generator=generator)
        slots = torch.arange((int(lengths.max()) - 2 * pairs) // 2)
        # Selecting the largest sums of log-probability and Gumbel noise is sampling without replacement.
        uniform = torch.rand(batch, len(slots), generator=generator, dtype=torch.float64)
        scores = (POWER - 1) * (slots + 1).log() - uniform.log().neg().log()
        scores = scores.masked_fill(slots >= (lengths[:, None] - 2 * pairs) // 2, float("-inf"))
        queries = 2 * pairs + 2 * scores.topk(pairs).indices
        inputs = torch.zeros(batch, int(lengths.max()), dtype=torch.int64)
        inputs[:, : 2 * pairs] = torch.stack([keys, values], dim=2).flatten(1)
        return inputs.scatter_(1, queries, keys)

    def sources(self, inputs: Tensor) -> tuple[list[Tensor], Tensor]:
        positions = torch.arange(inputs.shape[1], device=inputs.device).expand_as(inputs)
        first = (inputs[:, :, None] == inputs[:, None, :]).int().argmax(2)
        is_query = (inputs > 0) & (inputs <= self.keys) & (first < positions)
        first = torch.where(is_query, first, 0)
        value = (first + 1).clamp_max(inputs.shape[1] - 1)
        return [positions, first, value], is_query & (inputs.gather(1, value) > self.keys)  # a key that has a value


@dataclass(frozen=True, kw_only=True)
class ModularTaskConfig(TaskOptions):
    """Size of the task."""

    modulus: Annotated[int, Limits(2, 1000)] = 59
    """Modulus p. Numbers are from 0 to p - 1."""
    train_share: float = 0.3
    """Fraction of the p * p pairs that are used for training (above 0 and less than 1). The held-out pairs are
    the same for every seed."""

    def check_sizes(self) -> None:
        pairs = self.modulus**2
        if not 1 <= round(self.train_share * pairs) < pairs:
            raise InputError(
                f"train_share {self.train_share} of {pairs} pairs is out of range: leave at least one pair "
                f"for training and one held-out pair"
            )


class Modular(TokenTask):
    """Two numbers and "=", such as "5 57 =", which has the answer 3 for the modulus 59 (Power et al. 2022, "Grokking";
    Nanda et al. 2023, "Progress measures for grokking via mechanistic interpretability"). The answer depends on both
    numbers. (a, b) and (b, a) are different pairs, as in both papers. Answers for held-out pairs become correct long
    after the answers for training pairs, and only with weight decay."""

    name = "modular"
    summary = "add two numbers modulo p; some pairs are held out"
    config_class = ModularTaskConfig
    # One layer as in Nanda et al. Smaller batches and a higher rate than theirs take less time.
    defaults = {
        "hidden": 128,
        "layers": 1,
        "inner": 512,
        "activation": "relu",
        "tied": False,
        "batchsize": 256,
        "steps": 4000,
        "lr": 0.003,
        "weight_decay": 1.0,
    }

    def __init__(self, config: ModularTaskConfig | None = None) -> None:
        super().__init__(config)
        self.vocabulary = [*map(str, range(self.config.modulus)), "="]

    @property
    def lengths(self) -> range:
        return range(3, 4)

    @cached_property
    def pairs(self) -> tuple[Tensor, Tensor]:
        """The training pairs and the held-out pairs, each (pairs, 2) int64. The pairs are sorted by their SHA-256
        digest, so the split does not depend on the seed or on a library."""
        modulus = self.config.modulus
        pairs = sorted(
            ((first, second) for first in range(modulus) for second in range(modulus)),
            key=lambda pair: hashlib.sha256(f"{modulus}/{pair}".encode()).digest(),
        )
        both = torch.tensor(pairs)
        return both.tensor_split([round(self.config.train_share * len(both))])  # type: ignore[return-value]

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        pairs = self.pairs[unseen]
        return self._inputs(pairs[torch.randint(len(pairs), (len(lengths),), generator=generator)])

    def _inputs(self, pairs: Tensor) -> Tensor:
        return torch.nn.functional.pad(pairs, (0, 1), value=self.config.modulus)

    def answer(self, inputs: Tensor) -> Tensor:
        modulus = self.config.modulus
        sums = (inputs.roll(1, 1) + inputs.roll(2, 1)) % modulus
        return torch.where(self._ends_sum(inputs), sums, IGNORE)

    def relevance(self, inputs: Tensor) -> Tensor:
        current = torch.arange(inputs.shape[1], device=inputs.device).expand_as(inputs)
        return mark_positions([current - 1, current - 2], self._ends_sum(inputs))

    def _ends_sum(self, inputs: Tensor) -> Tensor:
        """Return (B, T) bool, True at the third token if the tokens are two numbers and "="."""
        modulus, ends = self.config.modulus, torch.zeros_like(inputs, dtype=torch.bool)
        if inputs.shape[1] == 3:
            ends[:, 2] = (inputs[:, 2] == modulus) & (inputs[:, :2] < modulus).all(1)
        return ends

    def batches(self, settings: BatchSettings, beginning: BatchContext) -> TokenBatches:
        """Return batches of distinct training pairs. A batch contains all pairs if `batchsize` is large enough."""
        return _PairBatches(self, settings)


class _PairBatches(TokenBatches):
    """Batches of distinct training pairs, in random order unless each batch contains all pairs."""

    task: Modular

    def draw(self, step: int) -> TokenBatch:
        pairs, size = self.task.pairs[0], self.settings.batchsize
        if size < len(pairs):
            generator = make_generator(self.settings.seed, f"tokens/{step}")
            pairs = pairs[torch.randperm(len(pairs), generator=generator)[:size]]
        inputs = self.task._inputs(pairs)
        return TokenBatch(inputs, self.task.answer(inputs), None)


@dataclass(frozen=True, kw_only=True)
class RegressionTaskConfig(TaskOptions):
    """Size of the task."""

    dims: Annotated[int, Limits(1, 100)] = 3
    """Number of dimensions of x."""
    points: Annotated[int, Limits(1, 1000)] = 7
    """Number of points in a sequence, each with its value. Garg et al. use 2 * dims + 1 points."""


class Regression(TokenTask):
    """Points with the values of a linear function, such as "0.5,1=2; 1,0=-1; 0.5,0": the answer at the last x is -0.5.

    Garg et al. 2022, "What Can Transformers Learn In-Context? A Case Study of Simple Function Classes": a trained
    Transformer predicts about as well as least squares. As there, the inputs are x1, y1, x2, y2, ..., where each
    y is padded with zeros to a vector. x and the weights of the function are standard normal, and y has no noise.

    `answer` is the least-squares prediction from the earlier points, with the smallest-norm weights if several
    weights fit. It is the best possible prediction. The targets of samples are the true values. Each answer
    depends on its x and on all earlier points.
    """

    name = "regression"
    summary = "predict the next value of a linear function from its points"
    config_class = RegressionTaskConfig
    # With 5 dimensions and 11 points, 3000 steps (72 seconds) leave half the squared error at 1.05; least squares
    # has 0.67.
    defaults = {"layers": 3, "steps": 6000, "lr": 0.003}

    def __init__(self, config: RegressionTaskConfig | None = None) -> None:
        super().__init__(config)
        self.input_width = self.config.dims

    @property
    def lengths(self) -> range:
        return range(2, 2 * self.config.points + 1, 2)

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        del unseen  # training never draws the same function again
        batch, points, dims = len(lengths), int(lengths.max()) // 2, self.config.dims
        weights = torch.randn(batch, dims, 1, generator=generator)
        x = torch.randn(batch, points, dims, generator=generator)
        y = torch.nn.functional.pad(x @ weights, (0, dims - 1))
        return torch.stack([x, y], dim=2).flatten(1, 2)

    def draw_with_targets(
        self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False
    ) -> tuple[Tensor, Tensor]:
        inputs = self.draw(lengths, generator, unseen=unseen)
        targets = torch.full(inputs.shape[:2], math.nan)
        targets[:, ::2] = inputs[:, 1::2, 0]
        return inputs, targets

    def answer(self, inputs: Tensor) -> Tensor:
        inputs, answers = inputs.double(), torch.full(inputs.shape[:2], math.nan, device=inputs.device)
        x, y = inputs[:, ::2], inputs[:, 1::2, :1]
        for point in range(x.shape[1]):
            weights = torch.linalg.pinv(x[:, :point]) @ y[:, :point]
            answers[:, 2 * point] = (x[:, point : point + 1] @ weights).flatten()
        return answers

    def relevance(self, inputs: Tensor) -> Tensor:
        steps = torch.ones(inputs.shape[1], inputs.shape[1], dtype=torch.bool, device=inputs.device).tril()
        steps[1::2] = False
        return steps.expand(inputs.shape[0], -1, -1)

    def example(self, generator: torch.Generator) -> tuple[str, str]:
        inputs, targets, _ = self.sample(1, generator, sample_len=4)
        return self.render(inputs[0, :3]), f"{targets[0, 2]:.4g}"

    @property
    def accepts(self) -> str:
        shape = f"1 to {self.config.points} points of {self.config.dims} numbers"
        return f"{shape}, each with its value (optional for the last point), such as 0.5,1=2; 1,0=-1; 2,1"

    def parse(self, text: str) -> Tensor:
        """Convert points such as `"0.5,1=2; 1,0=-1; 0.5,0"` to inputs (1, T, W); the last point may lack its value."""
        rows = list[list[float]]()
        for number, point in enumerate(points := text.split(";"), 1):
            x, equals, y = point.partition("=")
            try:
                row = [float(value) for value in x.split(",")]
                values = [float(y)] if equals else []
            except ValueError:
                row, values = [], []
            complete = bool(values) or number == len(points)
            if len(row) != self.input_width or not complete or not all(map(math.isfinite, [*row, *values])):
                raise InputError(f"point {number} of {shorten(text)} does not fit: {self.name} takes {self.accepts}")
            rows += [row, *([*values, *[0.0] * (self.input_width - 1)] for _ in values)]
        if len(points) > self.config.points:
            raise InputError(
                f"input {shorten(text)} has {plural(len(points), 'point')}: {self.name} takes {self.accepts}"
            )
        return torch.tensor([rows])

    def render(self, tokens: Tensor) -> str:
        rows = [",".join(f"{value:.4g}" for value in row) for row in tokens[::2].tolist()]
        values = [f"={value:.4g}" for value in tokens[1::2, 0].tolist()]
        return "; ".join(row + value for row, value in zip(rows, [*values, ""], strict=False))

    def labels(self, inputs: Tensor) -> list[str]:
        return [f"{'xy'[step % 2]}{step // 2 + 1}" for step in range(len(inputs))]


@dataclass(frozen=True, kw_only=True)
class SelectiveCopyTaskConfig(TaskOptions):
    """Size of the task."""

    max_len: int = 64
    """Number of tokens in a sequence: letters and noise, the separator, and all letters except the last."""
    letters: Annotated[int, Limits(1, 1000)] = 8
    """Number of letters to copy, at random positions."""
    vocab_size: Annotated[int, Limits(1, 26)] = 16
    """Number of different letters."""

    def check_sizes(self) -> None:
        check_range("max_len", self.max_len, 2 * self.letters, 10_000)


class SelectiveCopy(LookupTask):
    """Letters among noise, a separator, and the letters again: "..C.A..B|CA" has the answers C, A, B (Gu and Dao 2023,
    "Mamba", section 4.1.1). There, the inputs after the noise are blank; with letters, a model can generate them. If
    the positions of the letters do not change, each answer depends only on the letter that it copies."""

    name = "selective-copy"
    summary = "copy the letters among noise"
    config_class = SelectiveCopyTaskConfig
    defaults = {"steps": 1500, "lr": 0.003}

    def __init__(self, config: SelectiveCopyTaskConfig | None = None) -> None:
        super().__init__(config)
        self.vocabulary = NOISE + SEPARATOR + string.ascii_uppercase[: self.config.vocab_size]

    @property
    def lengths(self) -> range:
        return range(2 * self.config.letters, self.config.max_len + 1)

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        del unseen  # training draws a negligible fraction of all sequences
        batch, letters, longest = len(lengths), self.config.letters, int(lengths.max())
        copied = 2 + torch.randint(self.config.vocab_size, (batch, letters), generator=generator)
        before = lengths[:, None] - letters
        order = torch.rand(batch, longest, generator=generator).masked_fill(torch.arange(longest) >= before, 2.0)
        places = order.argsort(1)[:, :letters].sort(1).values
        inputs = torch.zeros(batch, longest + 1, dtype=torch.int64)  # one more for the last letter, which is cut
        inputs.scatter_(1, places, copied).scatter_(1, before, 1)
        return inputs.scatter_(1, before + 1 + torch.arange(letters), copied)[:, :longest]

    def sources(self, inputs: Tensor) -> tuple[list[Tensor], Tensor]:
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        after = (inputs == 1).cumsum(1) > 0
        places = torch.where((inputs > 1) & ~after, positions, inputs.shape[1]).sort(1).values
        number = (after.cumsum(1) - 1).clamp_min(0)
        places = places.gather(1, number)
        has_answer = after & (places < inputs.shape[1])
        return [places.clamp_max(inputs.shape[1] - 1)], has_answer


END = 2  # Token of "=", after the bits


@dataclass(frozen=True, kw_only=True)
class ParityTaskConfig(TaskOptions):
    """Size of the task."""

    max_len: Annotated[int, Limits(1, 10_000)] = 10
    """Largest number of bits in training. Numbers of bits are uniform from 1 to this number."""
    test_len: int = 100
    """Largest number of bits in a test. --sample-len also counts the final "="."""

    def check_sizes(self) -> None:
        check_range("test_len", self.test_len, self.max_len, 10_000)


class Parity(TokenTask):
    """Bits and "=": "01101=" has the answer 1, because it has three ones. The answer depends on all bits.

    Training samples are short, and longer samples test length generalization. Deletang et al. 2023, "Neural
    Networks and the Chomsky Hierarchy", train on up to 40 bits and test on 41 to 500. Here the default is 10
    bits, because small models learn this length: with up to 20 bits, 3000 steps reach 65 % correct outputs, and
    with up to 40 bits 57 %. Hahn 2020 proves a limit of attention on this task.
    """

    name = "parity"
    summary = "is the number of ones odd? also in longer sequences"
    config_class = ParityTaskConfig
    defaults = {"steps": 2000, "lr": 0.003}
    varied = True
    vocabulary = "01="

    @property
    def lengths(self) -> range:
        return range(2, self.config.max_len + 2)

    @property
    def longest(self) -> int:
        return int(self.config.test_len + 1)

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        del unseen  # tests draw from the same distribution, or choose a longer length
        inputs = torch.randint(2, (len(lengths), int(lengths.max())), generator=generator)
        return inputs.scatter_(1, lengths[:, None] - 1, END)

    def answer(self, inputs: Tensor) -> Tensor:
        return torch.where(inputs == END, (inputs == 1).cumsum(1) % 2, IGNORE)

    def relevance(self, inputs: Tensor) -> Tensor:
        before = torch.ones_like(inputs[0], dtype=torch.bool).expand(inputs.shape[1], -1).tril()
        return (inputs == END)[:, :, None] & (inputs != END)[:, None, :] & before


BRACKETS = ("()", "[]", "{}", "<>", "aA", "bB", "cC", "dD")


@dataclass(frozen=True, kw_only=True)
class DyckTaskConfig(TaskOptions):
    """Size of the task."""

    max_len: Annotated[int, Limits(2, 10_000)] = 40
    """Largest number of brackets in training (even). Lengths are uniform over the even numbers up to this number."""
    test_len: int = 100
    """Largest number of brackets in a test, with --sample-len."""
    vocab_size: Annotated[int, Limits(1, len(BRACKETS))] = 4
    """Number of kinds of brackets (1 to 8)."""
    depth: Annotated[int, Limits(1, 1000)] = 5
    """Largest number of brackets that are open at the same time."""

    def check_sizes(self) -> None:
        check_range("test_len", self.test_len, self.max_len, 10_000)


class Dyck(LookupTask):
    """Correctly nested brackets, such as "([]){}". The outputs are the closing brackets.

    If the nesting does not change, each answer depends only on the bracket that it closes. Each next bracket
    opens or closes with equal probability if both are possible. Longer samples than those of training test length
    generalization. Yao et al. 2021, "Self-Attention Networks Can Process Bounded Hierarchical Languages": a
    Transformer of two layers recognizes the language of k kinds of brackets and a depth of at most D.
    """

    name = "dyck"
    summary = "close nested brackets, also in longer sequences"
    config_class = DyckTaskConfig
    defaults = {"steps": 1000, "lr": 0.003}
    varied = True

    def __init__(self, config: DyckTaskConfig | None = None) -> None:
        super().__init__(config)
        self.kinds = self.config.vocab_size
        kinds = BRACKETS[: self.kinds]
        self.vocabulary = "".join(kind[0] for kind in kinds) + "".join(kind[1] for kind in kinds)

    @property
    def lengths(self) -> range:
        return range(2, self.config.max_len + 1, 2)

    @property
    def longest(self) -> int:
        """`test_len`, or `test_len` - 1 if `test_len` is odd."""
        return int(self.config.test_len // 2 * 2)

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        del unseen  # tests draw from the same distribution, or choose a longer length
        batch, longest = len(lengths), int(lengths.max())
        opens = torch.rand(batch, longest, generator=generator) < 0.5
        kinds = torch.randint(self.kinds, (batch, longest), generator=generator)
        inputs, rows = torch.zeros(batch, longest, dtype=torch.int64), torch.arange(batch)
        depth, open_kinds = torch.zeros_like(lengths), inputs.new_zeros(batch, longest + 1)
        for step in range(longest):
            left = lengths - step
            opening = ((opens[:, step] & (depth < self.config.depth)) | (depth == 0)) & (depth < left)
            top = torch.where(opening, depth, depth - 1).clamp_min(0)  # place on the stack of open brackets
            open_kinds[rows, top] = torch.where(opening, kinds[:, step], open_kinds[rows, top])
            inputs[:, step] = torch.where(opening, kinds[:, step], self.kinds + open_kinds[rows, top])
            depth = (depth + torch.where(opening, 1, -1)).clamp_min(0)  # below 0 only after the end
        return inputs

    def answer(self, inputs: Tensor) -> Tensor:
        opened = super().answer(inputs)
        return torch.where(opened == IGNORE, IGNORE, self.kinds + opened)

    def sources(self, inputs: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the position (B, T) of the innermost open bracket after each bracket, and whether it is closed
        next (B, T)."""
        positions, opening = torch.arange(inputs.shape[1], device=inputs.device), inputs < self.kinds
        depth = torch.where(opening, 1, -1).cumsum(1)
        same = (depth[:, :, None] == depth[:, None, :]) & opening[:, None, :] & (positions <= positions[:, None])
        closes = torch.cat([~opening[:, 1:], torch.ones_like(opening[:, :1])], dim=1)
        return [torch.where(same, positions, 0).amax(2)], closes & (depth > 0)

    def parse(self, text: str) -> Tensor:
        """Read brackets as inputs (1, T)."""
        inputs, open_kinds = super().parse(text), list[int]()
        for position, token in enumerate(inputs[0].tolist()):
            if token < self.kinds:
                open_kinds.append(token)
            elif not open_kinds or open_kinds.pop() != token - self.kinds:
                raise InputError(
                    f"bracket {self.vocabulary[token]!r} at position {position} of {shorten(text)} does not "
                    f"close the innermost open bracket: give nested brackets, such as ([])"
                )
        return inputs
