"""Descriptions of what a layer computes, for records, maps and explanations.

The equations of Vaswani et al. 2017 need no description: weights are the softmax of the scores, and the context
is the output of a head.
"""

from torch import nn

from regard.attention.layer import AttentionLayer, attention_layers
from regard.attention.mechanism import PARTS
from regard.attention.normalizers import TopK
from regard.attention.parts import Combination, Marked
from regard.attention.records import describe_remarks
from regard.attention.scores import Score


def part_name(part: nn.Module) -> str:
    """Return the name of a part in the table, or the name of its class."""
    return next((name for name, cls in PARTS.items() if cls is type(part)), type(part).__name__)


def describe_weights(layer: AttentionLayer) -> str:
    """Return what a reader of the weights must know, or an empty string for weights of a softmax.

    >>> from regard.attention.multihead import MultiHeadAttention
    >>> describe_weights(MultiHeadAttention(8, 2, mechanism="sink"))
    'rows need not sum to 1 (sink)'
    """
    texts = []
    if layer.linear is not None:
        name = part_name(layer.linear)
        texts.append(f"weights are those that the recurrence {name} implies")
        if not layer.linear.normalized:
            texts.append("rows need not sum to 1, and weights can be negative")
    else:
        parts = (layer.normalizer, layer.combination)
        names = [part_name(part) for part in parts if part is not None and not part.normalized]
        if names:
            negative = ", and weights can be negative" if can_be_negative(layer) else ""
            texts.append(f"rows need not sum to 1{negative} ({', '.join(names)})")
    changes = context_changes(layer)
    if changes:
        texts.append(f"weights are those before the context is changed ({', '.join(changes)})")
    return "; ".join(texts)


def describe_model(model: nn.Module) -> str:
    """Return `describe_weights` for the attention layers of a model in one line."""
    return describe_remarks({name: describe_weights(layer) for name, layer in attention_layers(model).items()})


def can_be_negative(layer: AttentionLayer) -> bool:
    """Return whether weights can be negative."""
    parts = (layer.combination, layer.linear)
    return any(part is not None and not part.normalized for part in parts)


def describe_normalizer(layer: AttentionLayer) -> str:
    """Return how the weights follow from the scores: "softmax over the row", or the names of other parts.

    >>> from regard.attention.multihead import MultiHeadAttention
    >>> describe_normalizer(MultiHeadAttention(8, 2, mechanism="entmax"))
    'entmax over the row'
    """
    if layer.linear is not None:
        return f"implied by the recurrence {part_name(layer.linear)}"
    name = f"{'softmax' if layer.normalizer is None else part_name(layer.normalizer)} over the row"
    if layer.combination is None or not _changes_weights(layer.combination):
        return name
    return f"{name}, then {part_name(layer.combination)}, which combines several rows"


def score_changes(layer: AttentionLayer) -> list[str]:
    """Return the names of the parts that change the result of the score before the normalizer."""
    parts: list[nn.Module] = [layer.score] if type(layer.score).rescale is not Score.rescale else []
    parts += [layer.bias] if layer.bias is not None else []
    combination = layer.combination
    if combination is not None and type(combination).change_scores is not Combination.change_scores:
        parts.append(combination)
    return [part_name(part) for part in parts]


def context_changes(layer: AttentionLayer) -> list[str]:
    """Return the names of the parts that change the context of each head before the output projection."""
    marked = layer.marked
    changed = marked is not None and type(marked).change_context is not Marked.change_context
    parts = [marked if changed else None, getattr(layer, "gate", None)]
    return [part_name(part) for part in parts if part is not None]


def is_plain(layer: AttentionLayer) -> bool:
    """Return whether weights are the softmax of the score, and the context of a head is unchanged.

    A page shows all steps of such a layer.
    """
    parts = (layer.normalizer, layer.combination, layer.linear)
    return all(part is None for part in parts) and not score_changes(layer) and not context_changes(layer)


def follows_softmax(layer: AttentionLayer) -> bool:
    """Return whether weights are proportional to the exponentials of the scores among the keys with a weight, so
    that a temperature can be applied to the weights.
    """
    plain = layer.normalizer is None or type(layer.normalizer) is TopK
    combined = layer.combination is not None and _changes_weights(layer.combination)
    return plain and layer.linear is None and not combined


def _changes_weights(combination: Combination) -> bool:
    return type(combination).change_weights is not Combination.change_weights
