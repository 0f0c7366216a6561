"""Usual mistakes in the whole Transformer."""

import math

import numpy as np

from regard.course.mistakes.solution import Solution
from regard.course.mistakes.transformer_solution import Array, Mask, Parameters

CROSS = (
    "Vaswani et al. 2017, section 3.2.3: 'the queries come from the previous decoder layer, and the "
    "memory keys and values come from the output of the encoder'"
)
EMBEDDING = "Vaswani et al. 2017, section 3.4: 'we multiply those weights by √d_model'"
POSITIONS = (
    "Vaswani et al. 2017, section 3.5: positions are added 'at the bottoms of the encoder and decoder stacks'"
)
STACK = "Vaswani et al. 2017, section 3.1: 'a stack of N = 6 identical layers', each with weights of its own"
PADDING = "Padding is no word: the mask of section 3.2.3 hides it"


class EmbeddingNotScaled(Solution):
    """The embeddings are not multiplied by √d_model."""

    instead = "Multiply embeddings by √d_model before the positions are added."
    paper = EMBEDDING

    def scale_embeddings(self, vectors: Array, side: str) -> Array:
        return vectors


class EmbeddingDivided(Solution):
    """The embeddings are divided by √d_model."""

    instead = "Multiply embeddings by √d_model before the positions are added."
    paper = EMBEDDING

    def scale_embeddings(self, vectors: Array, side: str) -> Array:
        return vectors / math.sqrt(vectors.shape[-1])


class SourceNotScaled(Solution):
    """Only the target's embeddings are multiplied by √d_model."""

    instead = "Multiply the source's embeddings too."
    paper = EMBEDDING

    def scale_embeddings(self, vectors: Array, side: str) -> Array:
        return vectors if side == "source" else super().scale_embeddings(vectors, side)


class TargetNotScaled(Solution):
    """Only the source's embeddings are multiplied by √d_model."""

    instead = "Multiply the target's embeddings too."
    paper = EMBEDDING

    def scale_embeddings(self, vectors: Array, side: str) -> Array:
        return vectors if side == "target" else super().scale_embeddings(vectors, side)


class PositionsScaledToo(Solution):
    """The positions are added before the scaling, and multiplied by √d_model with the embeddings."""

    instead = "Scale the embeddings first, then add the waves as they are."
    paper = EMBEDDING

    def embed(self, tokens: Array, table: Array, side: str) -> Array:
        vectors = table[tokens]
        return self.scale_embeddings(vectors + self.position_vectors(vectors, vectors.shape[-1]), side)


class NoPositions(Solution):
    """No positions are added: to attention the sentence is a bag of words."""

    instead = "Add the waves to the embeddings of source and target."
    paper = POSITIONS

    def position_vectors(self, states: Array, width: int) -> Array:
        return np.zeros((*states.shape[:2], width))


class NoSourcePositions(Solution):
    """The source has no positions."""

    instead = "Add the waves to the source's embeddings too."
    paper = POSITIONS

    def embed(self, tokens: Array, table: Array, side: str) -> Array:
        return (
            self.scale_embeddings(table[tokens], side) if side == "source" else super().embed(tokens, table, side)
        )


class NoTargetPositions(Solution):
    """The target has no positions."""

    instead = "Add the waves to the target's embeddings too."
    paper = POSITIONS

    def embed(self, tokens: Array, table: Array, side: str) -> Array:
        return (
            self.scale_embeddings(table[tokens], side) if side == "target" else super().embed(tokens, table, side)
        )


class SourcePaddingSeen(Solution):
    """The encoder attends to padding."""

    instead = "Hide the source's padding in the encoder's self-attention."
    paper = PADDING

    def encoder_mask(self, source: Array) -> Mask:
        return None


class PaddingSeenEverywhere(Solution):
    """Padding is attended, by the encoder and by the decoder: there is no padding mask."""

    instead = "Hide the source's padding (id 0) in the encoder and in the attention to it."
    paper = PADDING

    def encoder_mask(self, source: Array) -> Mask:
        return None

    def source_mask(self, source: Array, target: Array) -> Mask:
        return None


class CausalEncoder(Solution):
    """The encoder has a causal mask: a word does not see the words after it."""

    instead = "In the encoder every word sees every word; only padding is hidden."
    paper = "Vaswani et al. 2017, section 3.2.3: 'each position in the encoder can attend to all positions'"

    def encoder_mask(self, source: Array) -> Mask:
        mask = super().encoder_mask(source)
        return None if mask is None else mask & self.causal_mask(mask.shape[-1])


class Probabilities(Solution):
    """What comes back are probabilities: the softmax is in the model."""

    instead = "Return logits: the loss takes the softmax, and taking it twice flattens the gradient."
    paper = "This exercise's stub: returns logits"

    def logits(self, states: Array, parameters: Parameters) -> Array:
        return np.exp(self.log_softmax(super().logits(states, parameters)))


class LogProbabilities(Solution):
    """What comes back are log-probabilities: the log-softmax is in the model."""

    instead = "Return logits, as they leave the last layer."
    paper = "This exercise's stub: returns logits"

    def logits(self, states: Array, parameters: Parameters) -> Array:
        return self.log_softmax(super().logits(states, parameters))


class LayerByLayer(Solution):
    """Each decoder layer attends to the encoder layer beside it, not to the last one."""

    instead = "Every decoder layer attends to the output of the whole encoder."
    paper = CROSS

    def memory_for_layer(self, states: list[Array], which: int) -> Array:
        return states[which + 1]


class MemoryIsEmbedding(Solution):
    """The decoder attends to the source's embeddings: what the encoder made is thrown away."""

    instead = "Give the decoder the output of the last encoder layer."
    paper = CROSS

    def memory_for_layer(self, states: list[Array], which: int) -> Array:
        return states[0]


class SharedLayers(Solution):
    """All layers of a stack are one and the same: [layer] * N repeats one object."""

    instead = "Make each layer anew: ModuleList([Layer(...) for _ in range(N)])."
    paper = STACK

    def layer_parameters(self, parameters: Parameters, side: str, which: int) -> Parameters:
        return super().layer_parameters(parameters, side, 0)


class OneLayer(Solution):
    """Only the last layer of each stack counts: every layer gets the embedding instead of what came before it."""

    instead = "Feed each layer with the output of the one before: x = layer(x), with the same x."
    paper = STACK

    def transformer(self, source: Array, target: Array, parameters: Parameters, heads: int, layers: int) -> Array:
        last = {
            name.replace(f".{layers - 1}.", ".0."): value
            for name, value in parameters.items()
            if f".{layers - 1}." in name or "." not in name
        }
        return super().transformer(source, target, last, heads, 1)


class ShiftedInside(Solution):
    """The target is shifted once more inside the model: the last step never enters, and all others come late."""

    instead = "Take the target as it comes: who calls the model shifts it."
    paper = "Vaswani et al. 2017, figure 1: 'outputs (shifted right)'"

    def decoder_input(self, target: Array) -> Array:
        return np.concatenate([np.zeros_like(target[:, :1]), target[:, :-1]], 1)


class TiedOutput(Solution):
    """The output layer shares its weights with the target's embedding."""

    instead = (
        "The output layer has weights of its own here. (The paper shares them, which is no mistake elsewhere.)"
    )
    paper = "This exercise's stub: the output layer is w_out, b_out"

    def logits(self, states: Array, parameters: Parameters) -> Array:
        return states @ parameters["target"].T


class NormAtTheEnd(Solution):
    """There is one more norm at the end of encoder and decoder."""

    instead = "Each layer ends in a norm already; one more belongs to pre-norm models."
    paper = "Vaswani et al. 2017, section 3.1 and figure 1"

    def memory_for_layer(self, states: list[Array], which: int) -> Array:
        last = super().memory_for_layer(states, which)
        return self.normalise(last, np.ones(last.shape[-1]), np.zeros(last.shape[-1]))

    def logits(self, states: Array, parameters: Parameters) -> Array:
        width = states.shape[-1]
        return super().logits(self.normalise(states, np.ones(width), np.zeros(width)), parameters)


class NoOutputBias(Solution):
    """The output layer has no bias."""

    instead = "Add b_out to the logits."
    paper = "This exercise's stub: the output layer is w_out, b_out"

    def logits(self, states: Array, parameters: Parameters) -> Array:
        return states @ parameters["w_out"]
