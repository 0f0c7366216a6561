"""Mistakes in the whole Transformer."""

import math

import numpy as np

from regard_course.mistakes.decoder_mistakes import CROSS, PADDING
from regard_course.mistakes.solution import Solution, mistake, mistakes_in
from regard_course.mistakes.transformer_solution import Array, Mask, Parameters

EMBEDDING = "Vaswani et al. 2017, section 3.4: 'we multiply those weights by √d_model'"
POSITIONS = (
    "Vaswani et al. 2017, section 3.5: positions are added 'at the bottoms of the encoder and decoder stacks'"
)
STACK = "Vaswani et al. 2017, section 3.1: 'a stack of N = 6 identical layers', each with its own weights"
LOGITS = "This exercise's stub: returns logits"
OUTPUT = "This exercise's stub: the output layer is w_out, b_out"
scale_embeddings = mistakes_in(Solution.scale_embeddings, EMBEDDING)
added_positions = mistakes_in(Solution.added_positions, POSITIONS)
logits_logits = mistakes_in(Solution.logits, LOGITS)
memory_for_layer = mistakes_in(Solution.memory_for_layer, CROSS)
logits_output = mistakes_in(Solution.logits, OUTPUT)


@scale_embeddings("Multiply the embeddings by √d_model before the positions are added.")
def embedding_not_scaled(self: Solution, vectors: Array, side: str) -> Array:
    """The embeddings are not multiplied by √d_model."""
    return vectors


@scale_embeddings("Multiply the embeddings by √d_model before the positions are added.")
def embedding_divided(self: Solution, vectors: Array, side: str) -> Array:
    """The embeddings are divided by √d_model."""
    return vectors / math.sqrt(vectors.shape[-1])


@scale_embeddings("Multiply the source's embeddings too.")
def source_not_scaled(self: Solution, vectors: Array, side: str) -> Array:
    """Only the target's embeddings are multiplied by √d_model."""
    return vectors if side == "source" else Solution.scale_embeddings(self, vectors, side)


@scale_embeddings("Multiply the target's embeddings too.")
def target_not_scaled(self: Solution, vectors: Array, side: str) -> Array:
    """Only the source's embeddings are multiplied by √d_model."""
    return vectors if side == "target" else Solution.scale_embeddings(self, vectors, side)


@mistake(Solution.embed, EMBEDDING, "Scale the embeddings first, then add the positions.")
def positions_scaled_too(self: Solution, tokens: Array, table: Array, side: str) -> Array:
    """The positions are added before the scaling, so they are multiplied by √d_model too."""
    vectors = table[tokens]
    return self.scale_embeddings(vectors + self.position_vectors(vectors, vectors.shape[-1]), side)


@mistake(Solution.position_vectors, POSITIONS, "Add the positions to the embeddings of source and target.")
def no_positions(self: Solution, states: Array, width: int) -> Array:
    """No positions are added: for attention the sentence is a set of words without order."""
    return np.zeros((*states.shape[:2], width))


@added_positions("Add the positions to the source's embeddings too.")
def no_source_positions(self: Solution, vectors: Array, side: str) -> Array:
    """The source has no positions."""
    return Solution.added_positions(self, vectors, side) * (side != "source")


@added_positions("Add the positions to the target's embeddings too.")
def no_target_positions(self: Solution, vectors: Array, side: str) -> Array:
    """The target has no positions."""
    return Solution.added_positions(self, vectors, side) * (side != "target")


@mistake(Solution.encoder_mask, PADDING, "Hide the source's padding in the encoder's self-attention.")
def source_padding_seen(self: Solution, source: Array) -> Mask:
    """The encoder attends to padding."""
    return None


class PaddingSeenEverywhere(Solution, paper=PADDING):
    """Encoder and decoder attend to padding: there is no padding mask."""

    instead = "Hide the source's padding (token 0) in the encoder and in the decoder's attention to the source."

    def encoder_mask(self, source: Array) -> Mask:
        return None

    def source_mask(self, source: Array, target: Array) -> Mask:
        return None


@mistake(
    Solution.encoder_mask,
    "Vaswani et al. 2017, section 3.2.3: 'each position in the encoder can attend to all positions'",
    "In the encoder every word may attend to every word; hide only padding.",
)
def causal_encoder(self: Solution, source: Array) -> Mask:
    """The encoder has a causal mask: a word does not attend to later words."""
    mask = Solution.encoder_mask(self, source)
    return None if mask is None else mask & self.causal_mask(mask.shape[-1])


@logits_logits("Return logits: the loss applies the softmax, and a second softmax makes the gradient smaller.")
def probabilities(self: Solution, states: Array, parameters: Parameters) -> Array:
    """The model returns probabilities: it applies the softmax itself."""
    return np.exp(self.log_softmax(Solution.logits(self, states, parameters)))


@logits_logits("Return logits, the output of the last layer.")
def log_probabilities(self: Solution, states: Array, parameters: Parameters) -> Array:
    """The model returns log-probabilities: it applies the log-softmax itself."""
    return self.log_softmax(Solution.logits(self, states, parameters))


@memory_for_layer("Let every decoder layer attend to the output of the whole encoder.")
def layer_by_layer(self: Solution, states: list[Array], layer: int) -> Array:
    """Each decoder layer attends to the encoder layer with the same number, not to the last encoder layer."""
    return states[layer + 1]


@memory_for_layer("Give the decoder the output of the last encoder layer.")
def memory_is_embedding(self: Solution, states: list[Array], layer: int) -> Array:
    """The decoder attends to the source's embeddings: the encoder's output is not used."""
    return states[0]


@mistake(
    Solution.layer_parameters, STACK, "Create each layer separately: ModuleList([Layer(...) for _ in range(N)])."
)
def shared_layers(self: Solution, parameters: Parameters, side: str, layer: int) -> Parameters:
    """All layers of a stack are the same object: [layer] * N repeats it."""
    return Solution.layer_parameters(self, parameters, side, 0)


@mistake(
    Solution.transformer,
    STACK,
    "Give each layer the output of the previous layer: x = layer(x) in a loop.",
)
def one_layer(
    self: Solution, source: Array, target: Array, parameters: Parameters, heads: int, layers: int
) -> Array:
    """Only the last layer of each stack has an effect: every layer receives the embedding as its input."""
    last = {
        name.replace(f".{layers - 1}.", ".0."): value
        for name, value in parameters.items()
        if f".{layers - 1}." in name or "." not in name
    }
    return Solution.transformer(self, source, target, last, heads, 1)


@mistake(
    Solution.decoder_input,
    "Vaswani et al. 2017, figure 1: 'outputs (shifted right)'",
    "Use the target without shifting it: the caller has shifted it already.",
)
def shifted_inside(self: Solution, target: Array) -> Array:
    """The model shifts the target again: the last token is lost, and all others are one step late."""
    return np.concatenate([np.zeros_like(target[:, :1]), target[:, :-1]], 1)


@logits_output(
    "Use separate weights for the output layer here. (The paper shares these weights, so sharing is correct "
    "in other models.)",
)
def tied_output(self: Solution, states: Array, parameters: Parameters) -> Array:
    """The output layer shares its weights with the target's embedding."""
    return states @ parameters["target"].T


class NormAtTheEnd(Solution, paper="Vaswani et al. 2017, section 3.1 and figure 1"):
    """There is an additional norm at the end of encoder and decoder."""

    instead = (
        "Remove the additional norm, because each layer already ends in a norm. An additional norm"
        " belongs to pre-norm models."
    )

    def memory_for_layer(self, states: list[Array], layer: int) -> Array:
        last = super().memory_for_layer(states, layer)
        return self.normalize(last, np.ones(last.shape[-1]), np.zeros(last.shape[-1]))

    def logits(self, states: Array, parameters: Parameters) -> Array:
        width = states.shape[-1]
        return super().logits(self.normalize(states, np.ones(width), np.zeros(width)), parameters)


@logits_output("Add b_out to the logits.")
def no_output_bias(self: Solution, states: Array, parameters: Parameters) -> Array:
    """The output layer has no bias."""
    return states @ parameters["w_out"]
