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
