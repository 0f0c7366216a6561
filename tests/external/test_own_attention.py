"""Attention in a model's own code is recorded and changed exactly, beside a capture of PyTorch's operators.

The capture is a `TorchDispatchMode` that stores the result of each softmax operator and the weights of each fused
kernel. It shares no code with Regard. Each form of attention states the layout of its weights, and sets the
weights of a head to zero in its own code.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import regard
from regard.errors import InputError

SDPA: Any = F.scaled_dot_product_attention

H, D, WINDOW = 4, 16, 2
SIZES = [(2, 6), (4, 4), (3, 4), (1, 4), (4, 8), (8, 2)]
"""Samples and steps; some are equal to the number of heads or to the width of a head."""


class OperatorCapture(TorchDispatchMode):
    """Stores the weights that operators compute."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Tensor] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operator(*args, **(kwargs or {}))
        name = operator.overloadpacket.__name__
        if name in ("_softmax", "_safe_softmax", "softmax"):
            self.weights.append(result.clone())
        elif name.startswith("_scaled_dot_product"):
            query, key = args[0].double(), args[1].double()
            options = kwargs or {}
            causal = len(args) > 4 and args[4]
            scores = query @ key.transpose(-1, -2) * (options.get("scale") or query.shape[-1] ** -0.5)
            if options.get("attn_mask") is not None:
                scores = scores + options["attn_mask"]
            if causal:
                scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
            self.weights.append(scores.softmax(-1))
        return result


def by_head(weights: Tensor, layout: str, heads: int = H) -> Tensor:
    """Return weights (B, H, Tq, Tk) from weights whose axes are the letters of a layout: b (samples), w
    (windows), h and g (heads and groups of heads), q, k; letters in parentheses share an axis.
    """
    letters = [letter for letter in layout if letter not in "()"]
    sizes: list[int] = []
    axes = iter(weights.shape)
    position = 0
    while position < len(layout):
        if layout[position] == "(":
            end = layout.index(")", position)
            inner = layout[position + 1 : end]
            size = next(axes)
            sizes += [heads if letter == "h" else size // heads for letter in inner]
            position = end + 1
        else:
            sizes.append(next(axes))
            position += 1
    order = sorted(range(len(letters)), key=lambda index: "bwghqk".index(letters[index]))
    grouped = weights.reshape(sizes).permute(order)
    shape = [math.prod(size for size, letter in zip(sizes, letters, strict=True) if letter in group)
             for group in ("bw", "gh", "q", "k")]  # fmt: skip
    return grouped.reshape(shape)


class Form(nn.Module):
    """Self-attention of one form, with projections of its own."""

    def __init__(self, attend: Callable[..., Tensor], name: str | None = "num_heads", heads: int = H) -> None:
        super().__init__()
        if name is not None:
            setattr(self, name, heads)
        self.attend, self.off, self.count = attend, -1, heads
        self.to_q, self.to_k, self.to_v, self.to_out = (nn.Linear(D, D) for _ in range(4))

    def zero(self, weights: Tensor, axis: int) -> Tensor:
        """Return weights with the head `off` set to zero."""
        if self.off < 0:
            return weights
        return weights.index_fill(axis, torch.tensor([self.off]), 0.0)

    def forward(self, states: Tensor) -> Tensor:
        context = self.attend(self, self.to_q(states), self.to_k(states), self.to_v(states))
        output: Tensor = self.to_out(context)
        return output


def split(*states: Tensor, heads: int = H) -> list[Tensor]:
    """Return (B, H, T, d) from (B, T, D)."""
    return [part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in states]


def join(context: Tensor) -> Tensor:
    return context.transpose(1, 2).flatten(2)


def explicit(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT).softmax(-1) @ v


def of_weights(weigh: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return attention whose weights (B, H, Tq, Tk) are a function of queries and keys."""

    def attend(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = split(q, k, v)
        return join(form.zero(weigh(q, k), 1) @ v)

    return attend


def arranged(
    arrange: Callable[[Tensor], Tensor], restore: Callable[[Tensor], Tensor], inner: Callable[..., Tensor] = explicit
) -> Callable[..., Tensor]:
    """Return attention whose parts (B, H, T, d) have another shape inside `inner`."""

    def attend(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        context = inner(*(arrange(part) for part in split(q, k, v)))
        return join(form.zero(restore(context), 1))

    return attend


def by_einsum(layout: str) -> Callable[..., Tensor]:
    """Return attention whose weights have the axes of a layout."""

    def attend(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (H, -1)) for part in (q, k, v))
        weights = torch.einsum(f"bqhd,bkhd->{layout}", q, k).softmax(layout.index("k"))
        return torch.einsum(f"{layout},bkhd->bqhd", form.zero(weights, layout.index("h")), v).flatten(2)

    return attend


def causal_weights(q: Tensor, k: Tensor) -> Tensor:
    future = torch.ones(q.shape[2], q.shape[2]).triu(1).bool()
    return F.softmax((q @ k.mT).masked_fill(future, -math.inf), dim=-1, dtype=torch.float32)


matmul = of_weights(lambda q, k: (q @ k.transpose(-1, -2) / 2).softmax(dim=-1))
causal = of_weights(causal_weights)


def folded(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (part.flatten(0, 1) for part in split(q, k, v))
    weights = torch.baddbmm(q[:1, :1, :1], q, k.mT, beta=0, alpha=0.5).softmax(-1)
    weights = form.zero(weights.unflatten(0, (-1, H)), 1).flatten(0, 1)
    return join(torch.bmm(weights, v).unflatten(0, (-1, H)))


def folded_heads_first(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (torch.cat(part.split(D // H, dim=-1), dim=0) for part in (q, k, v))
    weights = torch.bmm(q, k.mT).softmax(-1)
    weights = form.zero(weights.unflatten(0, (H, -1)), 0).flatten(0, 1)
    return torch.cat(torch.bmm(weights, v).chunk(H, dim=0), dim=-1)


def steps_first(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    steps, batch = q.shape[1], len(q)
    q, k, v = (part.transpose(0, 1).reshape(steps, batch * H, -1).transpose(0, 1) for part in (q, k, v))
    weights = torch.bmm(q, k.mT).softmax(-1)
    weights = form.zero(weights.unflatten(0, (-1, H)), 1).flatten(0, 1)
    return torch.bmm(weights, v).transpose(0, 1).reshape(steps, batch, D).transpose(0, 1)


def loop(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    contexts = []
    for head, parts in enumerate(zip(*(part.chunk(H, -1) for part in (q, k, v)), strict=True)):
        weights = (parts[0] @ parts[1].mT).softmax(-1)
        contexts.append((weights * (head != form.off)) @ parts[2])
    return torch.cat(contexts, dim=-1)


def loop_of_four_axes(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q, k, v)
    contexts = []
    for head in range(H):
        rows = slice(head, head + 1)
        weights = F.softmax(q[:, rows] @ k[:, rows].mT, -1)
        contexts.append((weights * (head != form.off)) @ v[:, rows])
    return join(torch.cat(contexts, dim=1))


class OwnFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, off: int) -> Tensor:
        weights = (q @ k.mT).softmax(-1)
        if off >= 0:
            weights.view(-1, H, *weights.shape[-2:])[:, off] = 0
        return weights @ v

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0], gradients[0], gradients[0], None


def own_function(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    context: Tensor = OwnFunction.apply(*split(q, k, v), form.off)
    return join(context)


def own_folded_function(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    context: Tensor = OwnFunction.apply(*(part.flatten(0, 1) for part in split(q, k, v)), form.off)
    return join(context.unflatten(0, (-1, H)))


def groups(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q = q.unflatten(-1, (2, H // 2, -1)).permute(0, 2, 3, 1, 4)
    k, v = (part.unflatten(-1, (H, -1))[..., :2, :].transpose(1, 2)[:, :, None] for part in (k, v))
    weights = (q @ k.mT).softmax(-1)  # (B, groups, heads of a group, q, k)
    weights = form.zero(weights.flatten(1, 2), 1).unflatten(1, (2, -1))
    return (weights @ v).flatten(1, 2).transpose(1, 2).flatten(2)


def one_key_head(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q)[0], k[..., : D // H], v[..., : D // H]
    weights = torch.einsum("bhqd,bkd->bhqk", q, k).softmax(-1)
    return torch.einsum("bhqk,bkd->bqhd", form.zero(weights, 1), v).flatten(2)


def cosine_weights(q: Tensor, k: Tensor) -> Tensor:
    scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
    return (scores * 10 + torch.arange(H)[:, None, None]).softmax(-1)


def multiply_and_sum(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q, k, v)
    weights = (q[:, :, :, None] * k[:, :, None]).sum(-1).softmax(-1)
    return join((form.zero(weights, 1)[..., None] * v[:, :, None]).sum(-2))


def sink(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q, k, v)
    scores = q @ k.mT
    weights = torch.cat([scores, torch.ones_like(scores[..., :1])], -1).softmax(-1)
    return join(form.zero(weights, 1)[..., :-1] @ v)


def talking_heads(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q, k, v)
    mix = form.to_out.weight[:H, :H]
    weights = torch.einsum("bhqk,hg->bgqk", q @ k.mT, mix).softmax(-1)
    return join(torch.einsum("bhqk,hg->bgqk", form.zero(weights, 1), mix) @ v)


def written_to_a_tensor(q: Tensor, k: Tensor) -> Tensor:
    weights = torch.empty_like(scores := q @ k.mT)
    torch.softmax(scores, -1, out=weights)
    return weights


def first_query(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    first, k, v = split(q[:, :1], k, v)
    return torch.cat([join(form.zero((first @ k.mT).softmax(-1), 1) @ v), q[:, 1:]], 1)


def windows(part: Tensor) -> Tensor:
    return part.unflatten(2, (-1, WINDOW))


fused = arranged(nn.Identity(), nn.Identity(), SDPA)


def fused_loop(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    contexts = [
        SDPA(*parts) * (head != form.off)
        for head, parts in enumerate(zip(*(part.chunk(H, -1) for part in (q, k, v)), strict=True))
    ]
    return torch.cat(contexts, dim=-1)


FORMS: dict[str, tuple[Callable[..., Tensor], str]] = {
    "matmul": (matmul, "bhqk"),
    "causal": (causal, "bhqk"),
    "einsum": (by_einsum("bhqk"), "bhqk"),
    "heads after queries": (by_einsum("bqhk"), "bqhk"),
    "heads last": (by_einsum("bqkh"), "bqkh"),
    "keys before queries": (of_weights(lambda q, k: (k @ q.mT).softmax(-2).mT), "bhkq"),
    "heads first": (arranged(lambda part: part.transpose(0, 1), lambda context: context.transpose(0, 1)), "hbqk"),
    "folded": (folded, "(bh)qk"),
    "folded, heads first": (folded_heads_first, "(hb)qk"),
    "folded, steps first": (steps_first, "(bh)qk"),
    "loop": (loop, "bqk"),
    "loop of four axes": (loop_of_four_axes, "bhqk"),
    "own function": (own_function, "bhqk"),
    "own folded function": (own_folded_function, "(bh)qk"),
    "windows after heads": (arranged(windows, lambda context: context.flatten(2, 3)), "bhwqk"),
    "windows before heads": (
        arranged(lambda part: windows(part).transpose(1, 2), lambda context: context.transpose(1, 2).flatten(2, 3)),
        "bwhqk",
    ),
    "dilated windows": (
        arranged(
            lambda part: part.unflatten(2, (WINDOW, -1)).transpose(2, 3),
            lambda context: context.transpose(2, 3).flatten(2, 3),
        ),
        "bhwqk",
    ),
    "groups": (groups, "bghqk"),
    "one key head": (one_key_head, "bhqk"),
    "cosine": (of_weights(cosine_weights), "bhqk"),
    "distance": (of_weights(lambda q, k: (-torch.cdist(q, k)).softmax(-1)), "bhqk"),
    "multiply and sum": (multiply_and_sum, "bhqk"),
    "sink": (sink, "bhqk"),
    "talking heads": (talking_heads, "bhqk"),
    "softmin": (of_weights(lambda q, k: F.softmin(-q @ k.mT, -1)), "bhqk"),
    "written to a tensor": (of_weights(written_to_a_tensor), "bhqk"),
    "first query": (first_query, "bhqk"),
    "fused": (fused, "bhqk"),
    "fused folded": (
        arranged(lambda part: part.flatten(0, 1), lambda context: context.unflatten(0, (-1, H)), SDPA),
        "(bh)qk",
    ),
    "fused windows": (arranged(windows, lambda context: context.flatten(2, 3), SDPA), "bhwqk"),
    "fused heads first": (
        arranged(lambda part: part.transpose(0, 1), lambda context: context.transpose(0, 1), SDPA),
        "hbqk",
    ),
    "fused loop": (fused_loop, "bqk"),
}
"""The functions, and the layout of the weights of one call."""


def operator_weights(model: nn.Module, *inputs: Tensor) -> list[Tensor]:
    with OperatorCapture() as capture, torch.no_grad():
        model(*inputs)
    return capture.weights


@pytest.mark.parametrize(("batch", "steps"), SIZES)
@pytest.mark.parametrize("form", FORMS)
def test_forms_of_attention_are_recorded_and_changed_exactly(form: str, batch: int, steps: int) -> None:
    torch.manual_seed(batch)
    attend, layout = FORMS[form]
    model = nn.Sequential(nn.Linear(D, D), Form(attend), Form(attend)).eval()
    inner: Any = model[1]
    states = torch.randn(batch, steps, D)
    captured = [by_head(weights, layout) for weights in operator_weights(model, states)]
    count = len(captured) // 2
    expected = [torch.cat(captured[start : start + count], 1) for start in (0, count)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.no_grad(), regard.record(model) as records:
            plain = model(states)
        assert list(records) == ["1", "2"]
        for record, weights in zip(records.values(), expected, strict=True):
            torch.testing.assert_close(record.weights, weights.float(), atol=1e-6, rtol=1e-5)
        with torch.no_grad():
            torch.testing.assert_close(model(states), plain, atol=0, rtol=0)
            with regard.intervene(model, "1", heads=[2]), regard.record(model) as changed:
                off = model(states)
            inner.off = 2
            torch.testing.assert_close(off, model(states), atol=1e-6, rtol=1e-5)
    assert not changed["1"].weights[:, 2].any() and changed["1"].weights[:, 1].any()
    with pytest.raises(InputError, match=f"head {H} is out of range"), torch.no_grad():
        with regard.intervene(model, "1", heads=[H]):
            model(states)


def channels(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (part.mT for part in split(q, k, v))
    weights = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT).softmax(-1)  # (B, H, d, d)
    return join((weights @ v).mT)


def linear(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q, k, v)
    return join(q.softmax(-1) @ (k.softmax(-2).mT @ v))


def selected_queries(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Informer's ProbSparse attention (Zhou et al. 2021): other queries get the mean of the values."""
    q, k, v = split(q, k, v)
    scores = q @ k.mT
    rows = (scores.amax(-1) - scores.mean(-1)).topk(3, -1).indices[..., None].expand(-1, -1, -1, D // H)
    weights = (q.gather(2, rows) @ k.mT).softmax(-1)
    return join(v.mean(2, keepdim=True).expand_as(v).scatter(2, rows, weights @ v))


def last_query(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    last, k, v = split(q[:, -1:], k, v)
    return torch.cat([q[:, :-1], join(explicit(last, k, v))], 1)


def blocks_of_queries(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q, k, v)
    return join(torch.cat([explicit(block, k, v) for block in q.split(2, dim=2)], 2))


def reversed_queries(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return join(explicit(*split(q.flip(1), k, v))).flip(1)


def sorted_queries(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As in Reformer (Kitaev et al. 2020), each sample has its own order of queries."""
    order = q[..., :1].argsort(1).expand_as(q)
    sorted_q, k, v = split(q.gather(1, order), k, v)
    return torch.zeros_like(q).scatter(1, order, join((sorted_q @ k.mT).softmax(-1) @ v))


def queries_with_heads(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = (q.unflatten(-1, (H, -1)).flatten(1, 2) @ k[..., : D // H].mT).softmax(-1)  # (B, Tq H, Tk)
    return (weights @ v[..., : D // H]).unflatten(1, (-1, H)).flatten(2)


def vmap_of_heads(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return join(torch.vmap(explicit, in_dims=1, out_dims=1)(*split(q, k, v)))


@pytest.mark.parametrize(("batch", "steps"), [(2, 6), (4, 4), (3, 5)])
@pytest.mark.parametrize(
    ("attend", "reason"),
    [
        (last_query, "belong to selected queries"),
        (blocks_of_queries, "belong to selected queries"),
        (reversed_queries, "belong to selected queries"),
        (sorted_queries, "belong to selected queries"),
        (queries_with_heads, "heads and samples cannot be distinguished"),
        (vmap_of_heads, "heads, samples and queries cannot be distinguished"),
        (channels, "not queries .attention over channels"),
        (arranged(lambda part: part.mT, lambda context: context.mT, SDPA), "not queries .attention over channels"),
        (linear, "not queries .attention over channels"),
        (selected_queries, "(belong to selected queries|not queries)"),
    ],
)
def test_rows_that_are_no_queries_are_named(attend: Any, reason: str, batch: int, steps: int) -> None:
    model, states = nn.Sequential(nn.Linear(D, D), Form(attend)).eval(), torch.randn(batch, steps, D)
    with torch.no_grad(), pytest.warns(UserWarning, match=f"not recorded: 1 .Form: .*{reason}"):
        with regard.record(model) as records:
            model(states)
    assert not records and list(records.left_out) == ["1"]
    if attend is not linear:
        with pytest.raises(InputError, match=reason), torch.no_grad(), regard.intervene(model, "1", heads=[0]):
            model(states)


def differential(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Two maps for each head (Ye et al. 2024)."""
    q, k = split(q, k, heads=2 * H)
    first, second = (q @ k.mT).softmax(-1).unflatten(1, (H, 2)).unbind(2)
    return join((first - second / 2) @ split(v)[0])


def half_of_the_heads(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = split(q, k, v)
    parts = [slice(0, H // 2), slice(H // 2, H)]
    return join(torch.cat([(q[:, part] @ k[:, part].mT).softmax(-1) @ v[:, part] for part in parts], 1))


@pytest.mark.parametrize(("attend", "maps"), [(differential, 2 * H), (half_of_the_heads, H // 2)])
def test_number_of_maps_that_differs_from_the_heads_is_said(attend: Any, maps: int) -> None:
    model, states = Form(attend), torch.randn(2, 6, D)
    with pytest.warns(UserWarning, match=f"the model computes {maps} maps in each call, and has {H} heads"):
        with torch.no_grad(), regard.record(model) as records:
            model(states)
    assert records[""].weights.shape == (2, maps, 6, 6)


def test_loop_over_samples_and_heads_is_exact_for_one_sample_or_refused() -> None:
    def loop_of_samples(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows = [loop(form, *(part[index : index + 1, :, :] for part in (q, k, v))) for index in range(len(q))]
        return torch.cat(rows)

    def loop_without_batch(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.stack([loop(form, *parts) for parts in zip(q, k, v, strict=True)])

    for attend in (loop_of_samples, loop_without_batch):
        model, states = Form(attend), torch.randn(1, 4, D)
        with torch.no_grad(), regard.record(model) as records:
            model(states)
        captured = torch.stack([weights.reshape(4, 4) for weights in operator_weights(model, states)])
        torch.testing.assert_close(records[""].weights, captured[None])
        with torch.no_grad(), pytest.warns(UserWarning, match="not recorded"), regard.record(model):
            model(torch.randn(3, 4, D))


class OneHead(nn.Module):
    """A module for one head, in a list of modules."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(D, D // H) for _ in range(3))

    def forward(self, states: Tensor) -> Tensor:
        weights = (self.query(states) @ self.key(states).mT).softmax(-1)
        return weights @ self.value(states)


class ModulePerHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n_head, self.heads, self.last = H, nn.ModuleList(OneHead() for _ in range(H)), nn.Linear(D, D)

    def forward(self, states: Tensor) -> Tensor:
        output: Tensor = self.last(torch.cat([head(states) for head in self.heads], -1))
        return output


class TwoLayers(nn.Module):
    """Two layers of attention in one function, between an embedding, a router and a softmax over words."""

    def __init__(self) -> None:
        super().__init__()
        self.n_heads, self.words = H, nn.Embedding(9, D)
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(D, D) / 3) for _ in range(8))
        self.router, self.last = nn.Linear(D, 4), nn.Linear(D, 9)

    def forward(self, words: Tensor) -> Tensor:
        states = self.words(words)
        for start in (0, 4):
            q, k, v = split(*(states @ self.weights[start + part] for part in range(3)))
            states = states + join((q @ k.mT).softmax(-1) @ v) @ self.weights[start + 3]
        best, experts = self.router(states).softmax(-1).topk(2, -1)
        states = states + (best * experts).sum(-1, keepdim=True)
        return self.last(states).softmax(-1)


class Pooling(nn.Module):
    """Attention with one learned query: scores are no products."""

    def __init__(self, *, flat: bool) -> None:
        super().__init__()
        self.score, self.flat = nn.Linear(D, 1), flat

    def forward(self, states: Tensor) -> Tensor:
        scores = self.score(torch.tanh(states))
        if self.flat:
            return torch.bmm(scores.squeeze(-1).softmax(-1)[:, None], states)[:, 0]
        return (scores.softmax(1) * states).sum(1)


@pytest.mark.parametrize(("batch", "steps"), [(2, 6), (4, 4)])
@torch.no_grad()
def test_other_forms_are_recorded_exactly(batch: int, steps: int) -> None:
    torch.manual_seed(0)
    states, words = torch.randn(batch, steps, D), torch.randint(9, (batch, steps))
    cases: list[tuple[nn.Module, Tensor, list[str], str, int]] = [
        (ModulePerHead(), states, [f"heads.{head}" for head in range(H)], "bqk", H),
        (TwoLayers(), words, ["", "#1"], "bhqk", 2),
        (Pooling(flat=True), states, [""], "bk", 1),
        (Pooling(flat=False), states, [""], "bkq", 1),
        (Form(folded).bfloat16(), states.bfloat16(), [""], "(bh)qk", 1),
        (Form(matmul, None), states, [""], "bhqk", 1),
        (torch.compile(Form(folded), backend="eager"), states, [""], "(bh)qk", 1),  # type: ignore[list-item]
    ]
    for model, inputs, names, layout, count in cases:
        captured = operator_weights(model, inputs)[:count]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with regard.record(model) as records:
                model(inputs)
        assert list(records) == names
        for record, weights in zip(records.values(), captured, strict=True):
            torch.testing.assert_close(record.weights, by_head(weights, layout).float())


def test_causal_attention_of_own_modules_is_that_of_a_decoder() -> None:
    def fused_causal(form: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return join(SDPA(*split(q, k, v), is_causal=True))

    model = nn.Sequential(Form(fused_causal), Form(causal), Form(fused))
    with torch.no_grad(), regard.record(model) as records:
        model(torch.randn(2, 6, D))
    assert [record.kind for record in records.values()] == ["decoder", "decoder", "encoder"]


def test_model_trains_while_its_attention_is_recorded() -> None:
    model, states = nn.Sequential(Form(folded), Form(own_folded_function)), torch.randn(2, 6, D)
    model(states).sum().backward()
    expected = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    with regard.record(model) as records:
        model(states).sum().backward()
    assert len(records) == 2
    torch.testing.assert_close([parameter.grad for parameter in model.parameters()], expected)


def test_probes_call_no_hooks_of_the_user_and_the_projection_after_the_heads_is_found() -> None:
    calls = list[Tensor]()
    model, states = Form(matmul).eval(), torch.randn(4, 4, D)  # needs a probe
    with model.to_out.register_forward_pre_hook(lambda module, args: calls.append(args[0])):
        with torch.no_grad(), regard.record(model):
            model(states)
        assert len(calls) == 1
        with torch.no_grad(), regard.intervene(model, "", heads=[1]):
            model(states)
    assert len(calls) == 2 and not calls[1].unflatten(-1, (H, -1))[..., 1, :].any()
    layered = nn.Sequential(nn.Embedding(9, D), Form(causal), nn.Linear(D, 9)).eval()
    subject = regard.look(layered, lambda text: torch.tensor([[int(word) for word in text]]), inputs=["1234"])
    assert list(subject.components.heads) == ["1"]


def test_a_loss_of_a_model_with_an_output_for_each_step_is_attributed() -> None:
    model = nn.Sequential(nn.Embedding(9, D), Form(causal), nn.Linear(D, 9)).eval()

    def loss(model: nn.Module, text: str) -> Tensor:
        return F.cross_entropy(model(read(text))[0], read(text)[0])

    def read(text: str) -> Tensor:
        return torch.tensor([[int(word) for word in text]])

    texts = ["12345", "54321", "13524"]
    subject = regard.look(model, read, loss=loss, inputs=texts)
    attribution = regard.attribute(subject, texts[0], method="ablation_resampled")
    assert attribution.inputs is not None and attribution.inputs.shape == (1, 5)
    assert subject.examine(texts).yardstick is not None
