import math

import numpy as np


def sinusoidal_positions(length, width):
    rows = []
    for pos in range(length):
        row = []
        for i in range(width // 2):
            w = 1 / math.pow(10000, 2 * i / width)
            row.append(math.sin(pos * w))
            row.append(math.cos(pos * w))
        rows.append(row)
    return rows


def concatenate_positions(states, width):
    waves = np.array(sinusoidal_positions(states.shape[1], width))
    out = np.empty((states.shape[0], states.shape[1], states.shape[2] + width))
    out[:, :, : states.shape[2]] = states
    out[:, :, states.shape[2] :] = waves
    return out
