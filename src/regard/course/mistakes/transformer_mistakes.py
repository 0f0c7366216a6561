"""Mistakes in the whole Transformer."""

import math

import numpy as np

from regard.course.mistakes.decoder_mistakes import CROSS, PADDING
from regard.course.mistakes.solution import Solution
from regard.course.mistakes.transformer_solution import Array, Mask, Parameters

EMBEDDING = "Vaswani et al. 2017, section 3.4: 'we multiply those weights by √d_model'"
POSITIONS = (
    "Vaswani et al. 2017, section 3.5: positions are added 'at the bottoms of the encoder and decoder stacks'"
)
STACK = "Vaswani et al. 2017, section 3.1: 'a stack of N = 6 identical layers', each with its own weights"
LOGITS = "This exercise's stub: returns logits"
OUTPUT = "This exercise's stub: the output layer is w_out, b_out"


class EmbeddingNotScaled(Solution, paper=EMBEDDING):
    """The embeddings are not multiplied by √d_model."""

    instead = "Multiply the embeddings by √d_model before the positions are added."

    def scale_embeddings(self, vectors: Array, side: str) -> Array:
        return vectors


class EmbeddingDivided(Solution, paper=EMBEDDING):
    """The embeddings are divided by √d_model."""

    instead = "Multiply the embeddings by √d_model before the positions are added."

    def scale_embeddings(self, vectors: Array, side: str) -> Array:
        return vectors / math.sqrt(vectors.shape[-1])


class SourceNotScaled(Solution, paper=EMBEDDING):
    """Only the target's embeddings are multiplied by √d_model."""

    instead = "Multiply the source's embeddings too."

    def scale_embeddings(self, vectors: Array, side: str) -> Array:
        return vectors if side == "source" else super().scale_embeddings(vectors, side)


class TargetNotScaled(Solution, paper=EMBEDDING):
    """Only the source's embeddings are multiplied by √d_model."""

    instead = "Multiply the target's embeddings too."

    def scale_embeddings(self, vectors: Array, side: str) -> Array:
        return vectors if side == "target" else super().scale_embeddings(vectors, side)


class PositionsScaledToo(Solution, paper=EMBEDDING):
    """The positions are added before the scaling, so they are multiplied by √d_model too."""

    instead = "Scale the embeddings first, then add the positions."

    def embed(self, tokens: Array, table: Array, side: str) -> Array:
        vectors = table[tokens]
        return self.scale_embeddings(vectors + self.position_vectors(vectors, vectors.shape[-1]), side)


class NoPositions(Solution, paper=POSITIONS):
    """No positions are added: for attention the sentence is a set of words without order."""

    instead = "Add the positions to the embeddings of source and target."

    def position_vectors(self, states: Array, width: int) -> Array:
        return np.zeros((*states.shape[:2], width))


class NoSourcePositions(Solution, paper=POSITIONS):
    """The source has no positions."""

    instead = "Add the positions to the source's embeddings too."

    def embed(self, tokens: Array, table: Array, side: str) -> Array:
        if side != "source":
            return super().embed(tokens, table, side)
        return self.scale_embeddings(table[tokens], side)


class NoTargetPositions(Solution, paper=POSITIONS):
    """The target has no positions."""

    instead = "Add the positions to the target's embeddings too."

    def embed(self, tokens: Array, table: Array, side: str) -> Array:
        if side != "target":
            return super().embed(tokens, table, side)
        return self.scale_embeddings(table[tokens], side)


class SourcePaddingSeen(Solution, paper=PADDING):
    """The encoder attends to padding."""

    instead = "Hide the source's padding in the encoder's self-attention."

    def encoder_mask(self, source: Array) -> Mask:
        return None


class PaddingSeenEverywhere(Solution, paper=PADDING):
    """Encoder and decoder attend to padding: there is no padding mask."""

    instead = "Hide the source's padding (token 0) in the encoder and in the decoder's attention to the source."

    def encoder_mask(self, source: Array) -> Mask:
        return None

    def source_mask(self, source: Array, target: Array) -> Mask:
        return None


class CausalEncoder(
    Solution,
    paper="Vaswani et al. 2017, section 3.2.3: 'each position in the encoder can attend to all positions'",
):
    """The encoder has a causal mask: a word does not see later words."""

    instead = "In the encoder every word may attend to every word; hide only padding."

    def encoder_mask(self, source: Array) -> Mask:
        mask = super().encoder_mask(source)
        return None if mask is None else mask & self.causal_mask(mask.shape[-1])


class Probabilities(Solution, paper=LOGITS):
    """The model returns probabilities: it applies the softmax itself."""

    instead = "Return logits: the loss applies the softmax, and a second softmax makes the gradient smaller."

    def logits(self, states: Array, parameters: Parameters) -> Array:
        return np.exp(self.log_softmax(super().logits(states, parameters)))


class LogProbabilities(Solution, paper=LOGITS):
    """The model returns log-probabilities: it applies the log-softmax itself."""

    instead = "Return logits, the output of the last layer."

    def logits(self, states: Array, parameters: Parameters) -> Array:
        return self.log_softmax(super().logits(states, parameters))


class LayerByLayer(Solution, paper=CROSS):
    """Each decoder layer attends to the encoder layer of the same number, not to the last one."""

    instead = "Let every decoder layer attend to the output of the whole encoder."

    def memory_for_layer(self, states: list[Array], layer: int) -> Array:
        return states[layer + 1]


class MemoryIsEmbedding(Solution, paper=CROSS):
    """The decoder attends to the source's embeddings: the encoder's output is not used."""

    instead = "Give the decoder the output of the last encoder layer."

    def memory_for_layer(self, states: list[Array], layer: int) -> Array:
        return states[0]


class SharedLayers(Solution, paper=STACK):
    """All layers of a stack are the same object: [layer] * N repeats it."""

    instead = "Create each layer separately: ModuleList([Layer(...) for _ in range(N)])."

    def layer_parameters(self, parameters: Parameters, side: str, layer: int) -> Parameters:
        return super().layer_parameters(parameters, side, 0)


class OneLayer(Solution, paper=STACK):
    """Only the last layer of each stack has an effect: every layer receives the embedding as its input."""

    instead = "Feed each layer with the output of the previous one: x = layer(x), with the same x."

    def transformer(self, source: Array, target: Array, parameters: Parameters, heads: int, layers: int) -> Array:
        last = {
            name.replace(f".{layers - 1}.", ".0."): value
            for name, value in parameters.items()
            if f".{layers - 1}." in name or "." not in name
        }
        return super().transformer(source, target, last, heads, 1)


class ShiftedInside(Solution, paper="Vaswani et al. 2017, figure 1: 'outputs (shifted right)'"):
    """The model shifts the target again: the last token is lost, and all others are one step late."""

    instead = "Use the target without shifting it: the caller has shifted it already."

    def decoder_input(self, target: Array) -> Array:
        return np.concatenate([np.zeros_like(target[:, :1]), target[:, :-1]], 1)


class TiedOutput(Solution, paper=OUTPUT):
    """The output layer shares its weights with the target's embedding."""

    instead = (
        "Use separate weights for the output layer here. (The paper shares them; elsewhere it is no mistake.)"
    )

    def logits(self, states: Array, parameters: Parameters) -> Array:
        return states @ parameters["target"].T


class NormAtTheEnd(Solution, paper="Vaswani et al. 2017, section 3.1 and figure 1"):
    """There is an additional norm at the end of encoder and decoder."""

    instead = "Remove it: each layer already ends in a norm. An additional one belongs to pre-norm models."

    def memory_for_layer(self, states: list[Array], layer: int) -> Array:
        last = super().memory_for_layer(states, layer)
        return self.normalize(last, np.ones(last.shape[-1]), np.zeros(last.shape[-1]))

    def logits(self, states: Array, parameters: Parameters) -> Array:
        width = states.shape[-1]
        return super().logits(self.normalize(states, np.ones(width), np.zeros(width)), parameters)


class NoOutputBias(Solution, paper=OUTPUT):
    """The output layer has no bias."""

    instead = "Add b_out to the logits."

    def logits(self, states: Array, parameters: Parameters) -> Array:
        return states @ parameters["w_out"]
