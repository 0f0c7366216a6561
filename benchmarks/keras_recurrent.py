"""Train a recurrent encoder-decoder that is written with Keras layers and computes one target step at a time.

The model follows the common tutorial on attention in Keras. The encoder is a bidirectional LSTM. At each target
step, the previous decoder state is repeated and concatenated with every encoder state. Two dense layers and a
softmax over time compute the weights. An LSTM reads the context and the previous target token. A dense layer
reads the output of the LSTM. Keras uses the PyTorch backend, so Keras and Regard use the same kernels.
"""

import os
import time

import numpy as np

os.environ["KERAS_BACKEND"] = "torch"


def train(
    batches: list[tuple[np.ndarray, np.ndarray]], *, symbols: tuple[int, int], embedding: int, hidden: int
) -> list[float]:
    """Train on equally shaped batches of sources (B, Tx) and targets (B, Ty); return the seconds of each batch.

    `symbols` contains the sizes of the source and target vocabularies. `hidden` is the width of the decoder; each
    direction of the encoder has half of it.
    """
    import keras
    from keras import layers, ops

    (tx, ty), (sources, targets) = (batches[0][0].shape[1], batches[0][1].shape[1]), symbols
    source, target = keras.Input((tx,), dtype="int64"), keras.Input((ty,), dtype="int64")
    embedded = layers.Embedding(targets, embedding)(target)
    encoder = layers.Bidirectional(layers.LSTM(hidden // 2, return_sequences=True))
    states = encoder(layers.Embedding(sources, embedding)(source))
    repeat, concat = layers.RepeatVector(tx), layers.Concatenate(axis=-1)
    first, second = layers.Dense(hidden, activation="tanh"), layers.Dense(1)
    softmax, dot = layers.Softmax(axis=1), layers.Dot(axes=1)
    join, decoder = layers.Concatenate(axis=2), layers.LSTM(hidden, return_state=True)
    dense = layers.Dense(targets)
    start = layers.Dense(hidden, activation="tanh")(states[:, 0])
    state, cell, outputs = start, ops.zeros_like(start), []
    for step in range(ty):
        weights = softmax(second(first(concat([states, repeat(state)]))))
        context = dot([weights, states])
        read = join([context, embedded[:, step : step + 1]])
        output, state, cell = decoder(read, initial_state=[state, cell])
        outputs.append(dense(output))
    model = keras.Model([source, target], ops.stack(outputs, axis=1))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model.compile(keras.optimizers.Adam(0.005, clipnorm=1.0), loss)
    seconds = []
    for inputs, wanted in batches:
        begin = np.concatenate([np.ones_like(wanted[:, :1]), wanted[:, :-1]], axis=1)
        began = time.perf_counter()
        model.train_on_batch([inputs, begin], wanted)
        seconds.append(time.perf_counter() - began)
    return seconds
