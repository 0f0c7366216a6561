import numpy as np


def feed_forward(x, w_1, b_1, w_2, b_2):
    hidden = x @ w_1 + b_1
    hidden[hidden < 0] = 0
    return hidden @ w_2 + b_2
