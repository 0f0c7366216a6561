"""Rollout: the fraction of each input in each state, layer by layer (Abnar and Zuidema 2020).

    A_l = ½ mean over heads of W_l + ½ I        the residual connection passes on half of each state
    R_l = A_l R_(l-1),   R_0 = I

If outputs attend to inputs, their weights refer to the last state of each input: mean over heads of W, times R of
the encoder. `viz/js/matrix.js` computes the same in a page.
"""

from collections.abc import Sequence

import numpy as np

from regard.errors import InputError
from regard.viz.maps import CROSS, LayerMap, Map, finite


def rollout(weights: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the rollout (T, T) after each layer, from the weights (H, T, T) of layers in order.

    >>> rollout([np.array([[[1.0, 0.0], [1.0, 0.0]]])])[0].tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    product = np.eye(weights[0].shape[1])  # before the first layer, each state is its own input
    products = []
    for layer in weights:
        product = (finite(layer).mean(0) + np.eye(len(product))) / 2 @ product
        products.append(product)
    return products


def map_rollout(attention: Map) -> dict[str, tuple[LayerMap, np.ndarray]]:
    """Return the rollout (Tq, Tk) of each layer that affects the outputs, by layer name.

    The decoder of an encoder-decoder has no rollout, because its states also depend on the weights of other
    layers. Raises `InputError` if no layer of the map has a rollout, or if a layer changes the number of steps.
    """
    layers = list(attention.layers.values())
    cross = [layer for layer in layers if layer.kind == CROSS]
    own = [layer for layer in layers if layer.kind != CROSS and (layer.kind == "encoder" or not cross)]
    if any(layer.rows is not None for layer in layers):
        raise InputError("rollout needs exact weights, for which this input is too long: give a shorter input")
    if len({layer.weights.shape[1:] for layer in own}) > 1 or any(np.ptp(layer.weights.shape[1:]) for layer in own):
        raise InputError(
            "rollout needs layers with equal numbers of queries and keys, but the numbers differ in these layers"
        )
    if not own or len(own) + len(cross) < 2:
        raise InputError(
            f"rollout needs two or more layers that attend to each other's states, and {attention.task} has"
            f" {', '.join(attention.layers) or 'none'}: choose a model with more layers of self-attention"
        )
    products = rollout([layer.weights for layer in own])
    if not cross:
        return {layer.name: (layer, product) for layer, product in zip(own, products, strict=True)}
    return {
        layer.name: (layer, finite(layer.weights).mean(0) @ products[-1][: layer.weights.shape[2]]) for layer in cross
    }
