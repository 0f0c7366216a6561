import numpy as np


def positional_encoding(length, width):
    pe = np.zeros((length, width))
    pos = np.arange(length)[:, None]
    div = np.exp(np.arange(0, width, 2) * -(np.log(10000.0) / width))
    pe[:, 0::2] = np.sin(pos * div)
    pe[:, 1::2] = np.cos(pos * div)
    return pe
