"""What one call of Hugging Face's interface for attention was given, and its weights row by row."""

import inspect
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.records import Kind
from regard.foreign.keeper import Call, Rows, rows_of
from regard.foreign.kernel_inputs import allowed_by, self_attention
from regard.foreign.passes import Passes

PEERS = "transformers.modeling_utils"
PART = 512
"""Rows of a mask that are looked at at once."""
Output = tuple[Tensor, Tensor | None]


def eager_of(kind: type) -> Any:
    """Return the eager function of a class of layers, found once."""
    if kind not in _EAGER:
        _EAGER[kind] = _findeager_of(kind)
    return _EAGER[kind]


_EAGER: dict[type, Any] = {}


def _findeager_of(kind: type) -> Any:
    """Return the eager function that stands beside the code of a layer; None for what asks no interface."""
    for base in kind.__mro__:
        for function in vars(base).values():
            if inspect.isfunction(function) and base.__module__ != PEERS:
                function = inspect.unwrap(function)
                if "ALL_ATTENTION_FUNCTIONS" in function.__code__.co_names:
                    return function.__globals__.get("eager_attention_forward")
    return None


class Inputs:
    """What one call of the interface was given."""

    def __init__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        options: Any,
        *,
        skipped: bool,
    ) -> None:
        """`skipped`: whether a mask that only forbids the future was not made."""
        causal = options.get("is_causal")
        if causal is None:  # as transformers takes it for its fused kernel
            causal = skipped and getattr(module, "is_causal", True)
        if mask is None and causal and query.shape[2] > 1:
            if skipped and query.shape[2] == key.shape[2] and not _biased(options):
                self.__dict__["only_causal"] = True  # which rows are made of
            else:
                mask = _causal(query, key)
        self.module, self.query, self.key, self.value, self.mask = module, query, key, value, mask
        self.options = options

    @property
    def allowed(self) -> Tensor | None:
        """What may be attended, True = yes; not kept, for it is as large as all weights of a head."""
        return None if self.mask is None else allowed_by(self.mask)[..., : self.key.shape[2]]

    def eager(self) -> Output:
        """Attend as the model's own function does."""
        found: Output = eager_of(type(self.module))(
            self.module, self.query, self.key, self.value, _bias(self.mask, self.query), **self.options
        )
        return found

    @cached_property
    def only_causal(self) -> bool:
        """Whether the mask forbids the future and does nothing else."""
        return self.mask is not None and _only_causal(self.mask)

    def forget_values(self) -> None:
        """Keep none of the values: weights need none, and of a long input they take their room."""
        self.value = self.value[..., :0].clone()

    def forget_mask(self) -> None:
        """Do not keep a mask that can be made again row by row."""
        if self.mask is not None and not _biased(self.options) and self.only_causal:
            self.mask = None

    def some_see_nothing(self) -> bool:
        """Say whether some query has nothing to attend, as padding in a window has."""
        allowed = self.allowed
        return allowed is not None and not bool(allowed.any(-1).all())

    def fused(self) -> Output:
        """Attend with the fused kernel. A query that sees nothing gets nothing, as from a boolean mask."""
        from transformers import AttentionInterface

        mask = self.mask
        options = self.options if mask is not None else self.options | {"is_causal": False}
        if self.only_causal:  # the kernel is quicker without the matrix
            mask, options = None, self.options | {"is_causal": True}
        elif mask is not None and mask.dtype != torch.bool:
            mask = mask.masked_fill(~allowed_by(mask)[..., : self.key.shape[2]], float("-inf"))
        kernel: Any = AttentionInterface._global_mapping["sdpa"]
        found: Output = kernel(self.module, self.query, self.key, self.value, mask, **options)
        return found

    def weights(self, chosen: Sequence[int] | slice) -> tuple[Tensor, Tensor | None]:
        """Return the weights of some queries, of a softmax in float32 or better, and their mask."""
        queries, numbers = self.query.shape[2], _numbers(self.query)
        if self.mask is None and self.__dict__.get("only_causal"):
            return self._causal_weights(chosen)

        def some(value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.is_floating_point():
                return value
            return numbers(rows_of(value, chosen) if value.dim() == 4 and value.shape[2] == queries else value)

        query, mask = numbers(self.query[:, :, chosen]), self.mask
        bias = None if mask is None else rows_of(mask if mask.dtype == torch.bool else numbers(mask), chosen)
        options = {name: some(value) for name, value in self.options.items()} | {"dropout": 0.0}
        _, weights = eager_of(type(self.module))(
            self.module, query, numbers(self.key), numbers(self.value), _bias(bias, query), **options
        )
        assert weights is not None
        return weights, None if mask is None else allowed_by(rows_of(mask, chosen))[..., : weights.shape[3]]

    def _causal_weights(self, chosen: Sequence[int] | slice) -> tuple[Tensor, Tensor]:
        """Return the same where nothing but the future is forbidden, without a matrix that says so: of the keys,
        only those are looked at that some of the rows may see."""
        numbers, keys = _numbers(self.query), self.key.shape[2]
        places = torch.arange(self.query.shape[2], device=self.query.device)[chosen]
        seen = int(places.max()) + 1 if len(places) else 1
        allowed = torch.arange(keys, device=places.device) <= places[:, None]
        query, key, value = (
            numbers(each) for each in (self.query[:, :, chosen], self.key[:, :, :seen], self.value)
        )
        _, weights = eager_of(type(self.module))(
            self.module,
            query,
            key,
            value[:, :, :seen],
            _bias(allowed[None, None, :, :seen], query),
            **self.options | {"dropout": 0.0},
        )
        assert weights is not None
        return F.pad(weights, (0, keys - seen)), allowed[None, None]

    def call(self, rows: Rows, crossing: bool, passes: Passes) -> Call:
        """Describe the call for a keeper; `crossing`: whether it reads from another sequence."""
        first = self.first_key(crossing, passes)
        return Call(queries=self.query.shape[2], rows=rows, kind=self._kind(crossing), first_key=first)

    def first_key(self, crossing: bool, passes: Passes) -> int:
        """Return the step of the first key: of a window's cache, those before are gone."""
        if crossing or not _slides(self.module, passes.cache):
            return 0
        return max(passes.start + self.query.shape[2] - self.key.shape[2], 0)

    def context(self, weights: Tensor) -> Tensor:
        """Return the context (B, Tq, H, D) of other weights (B, H, Tq, Tk), as the eager function lays it out."""
        groups = weights.shape[1] // self.value.shape[1]
        value = self.value.repeat_interleave(groups, dim=1) if groups > 1 else self.value
        found: Tensor = (weights.to(value.dtype) @ value).transpose(1, 2).contiguous()
        return found

    def _kind(self, crossing: bool) -> Kind:
        if crossing:
            return "cross"
        if getattr(self.module, "is_causal", False) or getattr(self.module, "is_decoder", False):
            return "decoder"
        if self.__dict__.get("only_causal"):
            return "decoder"
        return self_attention(self.allowed, self.query.shape[2])


def _biased(options: Any) -> bool:
    """Say whether something else is added to the scores, for every query and key."""
    return any(isinstance(each, Tensor) and each.dim() == 4 for each in options.values())


def _slides(module: nn.Module, cache: Any) -> bool:
    """Say whether a layer's cache forgets what lies before its window."""
    layers = getattr(getattr(cache, "self_attention_cache", cache), "layers", ())
    index = getattr(module, "layer_idx", None)
    own = layers[index] if isinstance(index, int) and 0 <= index < len(layers) else None
    if hasattr(own, "get_seq_length") and getattr(own, "is_initialized", True):
        return bool(getattr(own, "is_sliding", False))
    return bool(layers)  # it uses the keys of another layer: where some are gone, that one's window has moved


def _numbers(query: Tensor) -> Callable[[Tensor], Tensor]:
    """Return what makes numbers of half precision into float32."""
    exact = query.dtype in (torch.bfloat16, torch.float16)
    return lambda values: values.float() if exact and values.is_floating_point() else values


def _bias(mask: Tensor | None, query: Tensor) -> Tensor | None:
    """Return what the eager function adds to the scores."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, torch.finfo(query.dtype).min)


def _only_causal(mask: Tensor) -> bool:
    """Say whether a mask forbids the future and does nothing else; looked at in parts, for it may be large."""
    if mask.shape[1] > 1 or mask.shape[-2] != mask.shape[-1] or mask.shape[-1] < 2:
        return False
    steps = torch.arange(mask.shape[-1], device=mask.device)
    for rows in steps.split(PART):
        part, past = mask[..., rows, :], steps <= rows[:, None]
        if not (allowed_by(part) == past).all() or not (part.dtype == torch.bool or ((part == 0) == past).all()):
            return False
    return True


def _causal(query: Tensor, key: Tensor) -> Tensor:
    ones = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device)
    return ones.tril(key.shape[2] - query.shape[2])[None, None]
