"""What one call of Hugging Face's interface for attention was given, and its weights row by row."""

import inspect
import math
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention.layer_record import Kind
from regard.errors import InputError
from regard.foreign.keeper import HALF, Call, Rows, rows_of, share_off, without_blind
from regard.foreign.kernel_inputs import allowed_by, self_attention
from regard.foreign.passes import Passes
from regard.libraries import is_memory

PEERS = "transformers.modeling_utils"
EAGER = "eager_attention_forward"
"""What the eager function of a file of transformers' is called, or how its name ends."""
KERNELS = {"sdpa_attention_forward": "sdpa", "flash_attention_forward": "flash", "flex_attention_forward": "flex"}
"""The fused functions of transformers'."""
PART = 512
"""Rows of a mask that are looked at at once."""
Output = tuple[Tensor, Any]


@cache
def asking_function(kind: type) -> Any:
    """Return the function of a class of layers that asks the interface; None where none does."""
    for base in kind.__mro__:
        for function in vars(base).values():
            if inspect.isfunction(function) and base.__module__ != PEERS:
                function = inspect.unwrap(function)
                if "ALL_ATTENTION_FUNCTIONS" in function.__code__.co_names and eager_name(function):
                    return function
    return None


def eager_name(function: Any) -> str:
    """Return what a function that asks the interface calls its eager function; "" where it has none."""
    return next((name for name in function.__code__.co_names if name.endswith(EAGER)), "")


def eager_of(kind: type) -> Any:
    """Return the eager function of a class of layers; None for what asks no interface."""
    function = asking_function(kind)
    return None if function is None else function.__globals__.get(eager_name(function))


class Inputs:
    """What one call of the interface was given: `function` computes it, `eager` can compute its weights."""

    def __init__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Any,
        options: Any,
        function: Any,
        eager: Any,
    ) -> None:
        self.module, self.query, self.key, self.value, self.options = module, query, key, value, options
        self.function, self.eager = function, eager
        self.output: Tensor | None = None
        """(B, Tq, H, D), what the function returned, as long as weights are to be compared with it."""
        self.differs: Callable[[float], None] = lambda share: None
        """Is told the largest difference, as a share of the largest output."""
        self.mask = _dense(mask, query, key)
        self.guessed = False
        """Whether the mask is one that a function of the user's own may have made itself, or not."""
        if function is not eager:
            self._hide_future()

    def _hide_future(self) -> None:
        """Make the mask that a fused function does not get, because it hides the future itself."""
        queries, keys = self.query.shape[2], self.key.shape[2]
        kernel = KERNELS.get(getattr(self.function, "__name__", ""))
        causal = self.options.get("is_causal")
        causal = getattr(self.module, "is_causal", True) if causal is None else causal
        partial = kernel == "flash" and self.mask is not None and self.mask.shape[2] == 1
        if kernel == "flex" or not causal or queries < 2 or not (self.mask is None or partial):
            return
        self.guessed = kernel is None
        window = self.options.get("sliding_window") if kernel == "flash" else None
        if self.mask is None and queries == keys and window is None and not _biased(self.options):
            self.__dict__["only_causal"] = True  # which rows are made of
            return
        diagonal = 0 if kernel == "sdpa" else keys - queries
        seen = torch.ones(queries, keys, dtype=torch.bool, device=self.query.device).tril(diagonal)
        seen = seen if window is None else seen.triu(diagonal - window + 1)
        self.mask = seen[None, None] if self.mask is None else self.mask & seen

    def compare(self, output: Tensor, differs: Callable[[float], None]) -> None:
        """Compare what weights make of the values with what the function returned, wherever they are worked out
        from now on; `differs` is told where that is not the same."""
        batch, heads, queries, _ = self.query.shape
        shape = (batch, queries, heads, self.value.shape[-1])
        if self.module.training and self.options.get("dropout"):
            return  # each draws its own
        if output.numel() != math.prod(shape):
            differs(math.inf)
            return
        self.output, self.differs = output.detach().reshape(shape), differs
        if self.guessed and self._share_off(*self._attend([0])[::2], [0]) is not None:
            self.mask, self.__dict__["only_causal"] = None, False

    def _share_off(self, context: Tensor, mask: Tensor | None, chosen: Sequence[int] | slice) -> float | None:
        """Return how far a context (B, Tq, H, D) of some queries is from the output, see `share_off`; None where
        nothing is compared."""
        if self.output is None:
            return None
        expected = self.output[:, chosen]
        return share_off(context, expected, None if mask is None else mask.any(-1).transpose(1, 2)[..., None])

    @property
    def allowed(self) -> Tensor | None:
        """What may be attended, True = yes; not kept, for it is as large as all weights of a head."""
        queries, keys = self.query.shape[2], self.key.shape[2]
        if self.mask is not None:
            return allowed_by(self.mask)[..., :keys]
        if self.__dict__.get("only_causal"):  # of which no mask is kept
            return torch.ones(1, 1, queries, keys, dtype=torch.bool, device=self.query.device).tril()
        return None

    @cached_property
    def only_causal(self) -> bool:
        """Whether the mask forbids the future and does nothing else."""
        return self.mask is not None and _only_causal(self.mask)

    def forget_values(self) -> None:
        """Keep none of the values: weights need none, and of a long input they take their room."""
        self.value, self.output = self.value[..., :0].clone(), None

    def forget_mask(self) -> None:
        """Do not keep a mask that can be made again row by row."""
        if self.mask is not None and not _biased(self.options) and self.only_causal:
            self.mask = None

    def returned(self, weights: Any) -> Tensor | None:
        """Return the weights (B, H, Tq, Tk) that the function returned, if it did, and these are what it used."""
        batch, heads, queries, _ = self.query.shape
        shape = (batch, heads, queries, self.key.shape[2])
        if not isinstance(weights, Tensor) or weights.shape != shape:
            return None
        if self.function is self.eager:
            return None if weights.dtype in HALF else without_blind(weights, self.allowed)
        if self._share_off(self.context(weights), self.allowed, slice(None)) is not None:
            return None
        return without_blind(_numbers(weights)(weights), self.allowed)

    def weights(self, chosen: Sequence[int] | slice) -> tuple[Tensor, Tensor | None]:
        """Return the weights of some queries, of a softmax in float32 or better, and their mask; rows that see
        nothing are zero."""
        context, weights, mask = self._attend(chosen)
        # Where weights are not finite, each function overflows elsewhere; the map says which layer that is.
        off = self._share_off(context, mask, chosen)
        if off is not None and not (math.isnan(off) and not weights.isfinite().all()):
            self.differs(off)
        return without_blind(weights, mask), mask

    def _attend(self, chosen: Sequence[int] | slice) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the context (B, Tq, H, D), the weights and the mask of some queries."""
        queries, numbers, keys = self.query.shape[2], _numbers(self.query), self.key.shape[2]
        mask, seen, allowed = self.mask, keys, None
        if mask is not None:
            mask = rows_of(mask if mask.dtype == torch.bool else numbers(mask), chosen)
            allowed = allowed_by(mask)[..., :keys]
        elif self.__dict__.get("only_causal"):
            # Without a matrix of all queries; of the keys, only those that some of the rows may see.
            places = torch.arange(queries, device=self.query.device)[chosen]
            seen = int(places.max()) + 1 if len(places) else 1
            allowed = (torch.arange(keys, device=places.device) <= places[:, None])[None, None]
            mask = allowed[..., :seen]

        def some(value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.is_floating_point():
                return value
            return numbers(rows_of(value, chosen) if value.dim() == 4 and value.shape[2] == queries else value)

        query = numbers(self.query[:, :, chosen])
        key, value = numbers(self.key[:, :, :seen]), numbers(self.value[:, :, :seen])
        options = {name: some(each) for name, each in self.options.items()} | {"dropout": 0.0}
        try:
            context, weights = self.eager(self.module, query, key, value, _bias(mask, query), **options)
        except Exception as error:
            # The eager function of some models takes fewer inputs than the fused one that the model has called:
            # no grouped keys, or no call without a mask. The result is compared with the output, as all are.
            if self.function is self.eager or is_memory(error):
                raise
            context, weights = _attention(query, key, value, _bias(mask, query), self.options.get("scaling"))
        if weights is None:
            raise InputError(f"{type(self.module).__name__} does not tell its weights: leave it out with layers=")
        return context, F.pad(weights, (0, keys - seen)) if seen < keys else weights, allowed

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


def _attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, scaling: float | None
) -> tuple[Tensor, Tensor]:
    """Return context (B, Tq, H, D) and weights (B, H, Tq, Tk) of scaled dot-product attention.

    query (B, H, Tq, D); key and value (B, G, Tk, D), where H is a multiple of G. Vaswani et al. 2017, equation 1.
    """
    key, value = (each.repeat_interleave(query.shape[1] // each.shape[1], dim=1) for each in (key, value))
    scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    weights = (scores if bias is None else scores + bias).softmax(-1)
    return (weights @ value).transpose(1, 2), weights


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
    exact = query.dtype in HALF
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


def _dense(mask: Any, query: Tensor, key: Tensor) -> Tensor | None:
    """Return a mask as (B, H, Tq, Tk), or what broadcasts to it: of keys (B, Tk), or blocks of FlexAttention."""
    if isinstance(mask, Tensor):
        return mask[:, None, None, :].bool() if mask.dim() == 2 else mask
    if not hasattr(mask, "mask_mod"):
        return None
    from torch.nn.attention.flex_attention import create_mask

    batch, heads = mask.shape[:2]
    found: Tensor = create_mask(
        mask.mask_mod, batch, heads, query.shape[2], key.shape[2], device=str(query.device)
    )
    return found
