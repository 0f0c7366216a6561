"""Attention computed in float64 by loops over samples, heads, queries and keys, from the equations of the papers.

The loops share no code with `regard.attention`; they only read the parameters of its modules.
"""

import math
from typing import Any

import torch
from torch import Tensor

from regard.attention.scores import Additive, Concat, Cosine, Dot, General, Scalable, ScaledDot, Score, SoftCapped

Choice = dict[str, tuple[float, ...]]
"""Parts by name, with their numbers."""


def numbers_of(text: str) -> Choice:
    """Return the parts of a text such as `window:2,sink`."""
    pairs = (part.split(":") for part in text.split(",") if part)
    return {name: tuple(map(float, numbers)) for name, *numbers in pairs}


@torch.no_grad()
def score_of(score: Score, query: Tensor, key: Tensor, count: int) -> float:
    """Return the score of one query (D,) and one key (Dk,), for a query that may attend to `count` keys."""
    width = len(query)
    match score:
        case Cosine():
            lengths = math.sqrt(sum(q * q for q in query.tolist())) * math.sqrt(sum(k * k for k in key.tolist()))
            return float(score.gain) * _dot(query, key) / lengths
        case SoftCapped():
            return score.cap * math.tanh(_dot(query, key) / math.sqrt(width) / score.cap)
        case Scalable():
            return float(score.gain) * math.log(count) * _dot(query, key) / math.sqrt(width)
        case ScaledDot():
            return _dot(query, key) / math.sqrt(width)
        case Dot():
            return _dot(query, key)
        case General():
            return float(query @ (score.key.weight @ key))
        case Concat():
            return float(score.energy.weight[0] @ torch.tanh(score.both.weight @ torch.cat([query, key])))
        case Additive():
            inner = score.query.weight @ query + score.key.weight @ key
            return float(score.energy.weight[0] @ torch.tanh(inner))
    raise AssertionError(score)


def _dot(query: Tensor, key: Tensor) -> float:
    return sum(q * k for q, k in zip(query.tolist(), key.tolist(), strict=True))


def _bisect(scores: list[float], weight: Any) -> list[float]:
    """Find the threshold by bisection, because the sum of the weights falls with it."""
    high = max(map(abs, scores)) + 2.0
    low = -high
    for _ in range(200):
        middle = (low + high) / 2
        if sum(weight(score, middle) for score in scores) > 1:
            low = middle
        else:
            high = middle
    return [weight(score, (low + high) / 2) for score in scores]


def normalize(parts: Choice, layer: Any, head: int, scores: list[float]) -> list[float]:
    """Return the weights of one row, whose scores are those of the keys that may be attended."""
    if not scores:
        return []
    if "sparsemax" in parts:
        return _bisect(scores, lambda score, threshold: max(score - threshold, 0.0))
    if "entmax" in parts:
        return _bisect(scores, lambda score, threshold: max(score / 2 - threshold, 0.0) ** 2)
    if "sigmoid" in parts:
        return [1 / (1 + math.exp(-(score - math.log(len(scores))))) for score in scores]
    added = 0.0
    if "softmax_one" in parts:
        added = 1.0
    elif "sink" in parts:
        added = math.exp(float(layer.normalizer.sink[head]))
    least = -math.inf
    if "topk" in parts:
        least = sorted(scores, reverse=True)[: int(parts["topk"][0])][-1]
    exponentials = [math.exp(score) if score >= least else 0.0 for score in scores]
    return [value / (added + sum(exponentials)) for value in exponentials]


def bias_of(parts: Choice, layer: Any, head: int, heads: int, query: int, key: int) -> float:
    """Return the position bias of a query and a key at these positions."""
    if "alibi" in parts:
        return -(2 ** (-8 * (head + 1) / heads)) * abs(query - key)
    if "t5" not in parts:
        return 0.0
    buckets, farthest = map(int, parts["t5"] or (32, 128))
    distance, first = query - key, 0
    if layer.kind == "causal":
        distance = max(distance, 0)
    else:
        buckets //= 2
        first = buckets if distance < 0 else 0
        distance = abs(distance)
    exact = buckets // 2
    if distance >= exact:
        growth = math.log(distance / exact) / math.log(farthest / exact)
        distance = min(exact + int(growth * (buckets - exact)), buckets - 1)
    return float(layer.bias.bias[head, first + distance])


def rotate(parts: Choice, vector: Tensor, position: int) -> Tensor:
    """Return a vector whose pairs of dimensions are rotated."""
    base, fraction = parts["rotary"] + (10_000.0, 1.0)[len(parts["rotary"]) :]
    width = max(2, 2 * round(fraction * len(vector) / 2))
    rotated = vector.clone()
    for pair in range(width // 2):
        angle = position * base ** (-2 * pair / width)
        even, odd = float(vector[2 * pair]), float(vector[2 * pair + 1])
        rotated[2 * pair] = even * math.cos(angle) - odd * math.sin(angle)
        rotated[2 * pair + 1] = even * math.sin(angle) + odd * math.cos(angle)
    return rotated


def allows(parts: Choice, kind: str, query: int, key: int) -> bool:
    """Return whether the mask of the layer and that of its parts let a query attend to a key."""
    allowed = key <= query or not (kind == "causal" or "causal" in parts)
    for name in ("window", "streaming"):
        if name in parts:
            width, first = (*parts[name], 0.0)[:2]
            allowed &= abs(query - key) < width or key < first
    return allowed


def rms(vector: Tensor, weight: Tensor) -> Tensor:
    """Return a vector divided by its root mean square."""
    return vector / math.sqrt(float((vector * vector).mean()) + 1e-5) * weight


def sigmoid(number: float) -> float:
    """Return the logistic function."""
    return 1 / (1 + math.exp(-number))


class Sample:
    """One sample of a layer: its queries, keys and values by head."""

    def __init__(self, layer: Any, text: str, states: Tensor, memory: Tensor, padding: list[bool]) -> None:
        self.layer, self.parts, self.padding = layer, numbers_of(text), padding
        self.states, self.memory = states, memory
        self.heads, self.width, self.groups = layer.heads, layer.head_width, layer.groups
        self.offset = len(memory) - len(states)
        self.source = [self._source(state) for state in memory]

    def _source(self, state: Tensor) -> Tensor:
        if "latent" not in self.parts:
            return state
        return rms(self.layer.sharing.down.weight @ state, self.layer.sharing.norm.weight)

    def _slice(self, head: int, second: bool) -> slice:
        if "differential" not in self.parts:
            return slice(head * self.width, (head + 1) * self.width)
        begin = head * self.width + (self.width // 2 if second else 0)
        return slice(begin, begin + self.width // 2)

    def query(self, head: int, step: int, second: bool = False, states: Tensor | None = None) -> Tensor:
        """Return the query (d,) of a head at a step."""
        offset, states = (self.offset, self.states) if states is None else (0, states)
        vector = (self.layer.query.weight @ states[step])[self._slice(head, second)]
        return rotate(self.parts, vector, step + offset) if "rotary" in self.parts else vector

    def key(self, head: int, step: int, second: bool = False) -> Tensor:
        """Return the key (d,) of a head of queries at a step."""
        group = head // (self.heads // self.groups)
        vector = self._plain_key(group, step, second)
        if "shifted_keys" in self.parts and step > 0:
            share = sigmoid(float(self.layer.sharing.mixture[group]))
            vector = share * vector + (1 - share) * self._plain_key(group, step - 1, second)
        return vector

    def _plain_key(self, group: int, step: int, second: bool) -> Tensor:
        vector = (self.layer.key.weight @ self.source[step])[self._slice(group, second)]
        return rotate(self.parts, vector, step) if "rotary" in self.parts else vector

    def value(self, head: int, step: int) -> Tensor:
        """Return the value (d,) of a head of queries at a step."""
        group = head // (self.heads // self.groups)
        return (self.layer.value.weight @ self.source[step])[group * self.width : (group + 1) * self.width]

    def keys_of(self, query: int) -> list[int]:
        """Return the keys that a query may attend to."""
        keys = range(len(self.memory))
        kind, position = self.layer.kind, query + self.offset
        return [key for key in keys if self.padding[key] and allows(self.parts, kind, position, key)]

    def forget_sum(self, head: int, query: int, key: int) -> float:
        """Return the sum of the logarithms of the forget gates after a key up to a query."""
        part = self.layer.combination or self.layer.linear
        steps = range(key + 1, query + self.offset + 1)
        numbers = (float(part.gate.weight[head] @ self.memory[step] + part.offset[head]) for step in steps)
        return sum(math.log(sigmoid(number)) for number in numbers)

    def scores(self, query: int) -> list[list[float]]:
        """Return the scores of one query by score matrix, and by key that it may attend to."""
        keys = self.keys_of(query)
        matrices = [(head, second) for second in (False, True) for head in range(self.heads)]
        rows = []
        for head, second in matrices if "differential" in self.parts else matrices[: self.heads]:
            row = []
            for key in keys:
                pair = self.query(head, query, second), self.key(head, key, second)
                score = score_of(self.layer.score, *pair, len(keys))
                score += bias_of(self.parts, self.layer, head, self.heads, query + self.offset, key)
                row.append(score + self._change(head, query, key))
            rows.append(row)
        if "talking_heads" in self.parts:
            rows = _mix(self.layer.combination.scores, rows)
        return rows

    def _change(self, head: int, query: int, key: int) -> float:
        if "forgetting" in self.parts:
            return self.forget_sum(head, query, key)
        if "selective" in self.parts and key > 0:
            earlier = range(key + 1, query + self.offset)
            score = ScaledDot(self.width) if isinstance(self.layer.score, Scalable) else self.layer.score
            queries = (self.query(0, step, states=self.memory) for step in earlier)
            selections = (score_of(score, vector, self.key(0, key), 1) for vector in queries)
            return -sum(max(selection, 0.0) for selection in selections)
        return 0.0

    def weights(self, query: int) -> Tensor:
        """Return the weights (H, Tk) of one query."""
        rows = [normalize(self.parts, self.layer, head, row) for head, row in enumerate(self.scores(query))]
        if "talking_heads" in self.parts:
            rows = _mix(self.layer.combination.weights, rows)
        if "differential" in self.parts:
            part = self.layer.combination
            first = math.exp(float(part.query_first @ part.key_first))
            factor = first - math.exp(float(part.query_second @ part.key_second)) + 0.8
            pairs = zip(rows[: self.heads], rows[self.heads :], strict=True)
            rows = [[a - factor * b for a, b in zip(*pair, strict=True)] for pair in pairs]
        weights = torch.zeros(self.heads, len(self.memory), dtype=torch.float64)
        for head, row in enumerate(rows):
            for key, weight in zip(self.keys_of(query), row, strict=True):
                weights[head, key] = weight
        return weights

    def context(self, head: int, query: int) -> Tensor:
        """Return the context (d,) of a head, before its gate."""
        if {"linear", "gated_linear", "delta_rule"} & set(self.parts):
            return self._recur(head, query)
        weights = self.weights(query)[head]
        context = torch.zeros(self.width, dtype=torch.float64)
        for key, weight in enumerate(weights.tolist()):
            context += weight * self.value(head, key)
        if "differential" in self.parts:
            context = 0.2 * rms(context, self.layer.combination.norm.weight)
        return context

    def _recur(self, head: int, query: int) -> Tensor:
        """Return the context after a recurrence over the keys that the query may attend to."""
        state, total = torch.zeros(self.width, self.width, dtype=torch.float64), torch.zeros(self.width).double()
        vector, part = self.query(head, query), self.layer.linear
        for step in range(len(self.memory)):
            key, value = self.key(head, step), self.value(head, step)
            if "gated_linear" in self.parts and step <= query + self.offset:
                state = sigmoid(float(part.gate.weight[head] @ self.memory[step] + part.offset[head])) * state
            if step not in self.keys_of(query):
                continue
            if "linear" in self.parts:
                key = torch.tensor([x + 1 if x > 0 else math.exp(x) for x in key.tolist()], dtype=torch.float64)
                total = total + key
            if "delta_rule" in self.parts:
                key = _unit(key)
                rate = sigmoid(float(part.rate.weight[head] @ self.memory[step]))
                state = state - rate * torch.outer(key, key @ state)
                value = rate * value
            state = state + torch.outer(key, value)
        if "linear" in self.parts:
            vector = torch.tensor([x + 1 if x > 0 else math.exp(x) for x in vector.tolist()], dtype=torch.float64)
            divisor = float(vector @ total)
            return vector @ state / divisor if divisor else vector @ state
        context = _unit(vector) @ state if "delta_rule" in self.parts else vector @ state / math.sqrt(self.width)
        return rms(context, part.norm.weight)

    def output(self, query: int) -> Tensor:
        """Return the output (D,) of the layer for one query."""
        contexts = []
        for head in range(self.heads):
            context = self.context(head, query)
            if "output_gate" in self.parts:
                rows = self.layer.gate.gate.weight[head * self.width : (head + 1) * self.width]
                context = context * torch.sigmoid(rows @ self.states[query])
            if "head_gate" in self.parts:
                context = context * sigmoid(float(self.layer.gate.gate.weight[head] @ self.states[query]))
            contexts.append(context)
        result: Tensor = self.layer.output.weight @ torch.cat(contexts)
        return result


def _unit(vector: Tensor) -> Tensor:
    activated = torch.tensor([x * sigmoid(x) for x in vector.tolist()], dtype=torch.float64)
    return activated / math.sqrt(float((activated * activated).sum()))


def _mix(matrix: Tensor, rows: list[list[float]]) -> list[list[float]]:
    columns = list(zip(*rows, strict=True))
    return [[sum(float(m) * x for m, x in zip(line, column, strict=True)) for column in columns] for line in matrix]


@torch.no_grad()
def attend_by_loops(layer: Any, text: str, query: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    """Return the outputs (B, Tq, D) of a layer for queries (B, Tq, D), memory (B, Tk, Dm) and mask (B, Tk)."""
    samples = [
        Sample(layer, text, states, keys, list(map(bool, row)))
        for states, keys, row in zip(query, memory, mask, strict=True)
    ]
    return torch.stack([torch.stack([sample.output(step) for step in range(query.shape[1])]) for sample in samples])


@torch.no_grad()
def weights_by_loops(layer: Any, text: str, query: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    """Return the weights (B, H, Tq, Tk) of a layer, which is not of the linear family."""
    samples = [
        Sample(layer, text, states, keys, list(map(bool, row)))
        for states, keys, row in zip(query, memory, mask, strict=True)
    ]
    return torch.stack(
        [torch.stack([sample.weights(step) for step in range(query.shape[1])], dim=1) for sample in samples]
    )
