"""Similarity of positions."""

import numpy as np

from regard.attention.positions import Sinusoidal
from regard.viz.plots import similarity


def test_similarity_is_the_cosine() -> None:
    vectors = np.array([[3.0, 0.0], [0.0, 2.0], [1.0, 1.0], [0.0, 0.0]])
    half = 0.5**0.5
    np.testing.assert_allclose(
        similarity(vectors), [[1, 0, half, 0], [0, 1, half, 0], [half, half, 1, 0], [0, 0, 0, 0]]
    )


def test_sinusoidal_similarity_depends_only_on_distance() -> None:
    cosines = similarity(Sinusoidal(16).vectors(0, 30).numpy())
    for distance in range(30):
        np.testing.assert_allclose(np.diagonal(cosines, distance), cosines[0, distance])
