"""Features equal plain loops over the weights of one translation, and do not depend on the batch."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.data import BOS, EOS
from regard.doubts.features import SPAN, References, feature_names, measure_features, read_references
from regard.errors import InputError
from tests.german import sentences, write

PAIRS = sentences()[264:288]


def test_features_equal_loops(german: regard.TranslationRun) -> None:
    source, target = PAIRS[0]
    names = feature_names(german, None, None)
    measured = dict(zip(names, measure_features(german, PAIRS)[0], strict=True))
    tokens = german.task.target_vocabulary.encode(target)
    attention = german.attend_tokens(source, tokens)
    [layer] = [name for name in attention.layers if "cross" in name]
    weights = attention.layers[layer].weights.astype(np.float64).mean(0)
    steps, length = weights.shape
    words = [any(map(str.isalnum, label)) and label != "</s>" for label in attention.layers[layer].key_labels]
    mass = [sum(weights[t][s] for t in range(steps)) / steps for s in range(length)]
    unread = [words[s] * (1 - min(1.0, sum(weights[t][s] for t in range(steps)))) for s in range(length)]
    expected = {
        "from_uniform": sum(abs(mass[s] - 1 / length) for s in range(length)) / 2,
        "end_share": sum(mass[s] for s in range(length) if not words[s]),
        "entropy": -sum(w * math.log(w) for row in weights for w in row if w > 0) / math.log(length) / steps,
        "unread": sum(unread) / sum(words),
        "unread_span": max(sum(unread[s : s + SPAN]) / SPAN for s in range(length)),
    }
    for name, value in expected.items():
        assert measured[f"{layer} {name}"] == pytest.approx(value, abs=1e-5), name
    assert measured["improbable"] == pytest.approx(-german.score([(source, target)])[0].per_token, abs=1e-4)
    assert measured["length"] == pytest.approx(math.log((len(source) + 1) / (len(target) + 1)))


def test_features_do_not_depend_on_the_batch(german: regard.TranslationRun) -> None:
    together = measure_features(german, PAIRS)
    alone = np.concatenate([measure_features(german, [pair]) for pair in PAIRS])
    assert together == pytest.approx(alone, abs=1e-4)


def test_the_distance_equals_the_wasserstein_distance() -> None:
    from scipy.stats import wasserstein_distance

    generator = np.random.default_rng(0)
    masses = generator.dirichlet(np.ones(6), 9)
    references = References(masses=masses, lengths=np.full(9, 10))
    mass = generator.dirichlet(np.ones(8))
    distances = sorted(wasserstein_distance(range(6), range(8), row, mass) for row in masses)
    assert references.distance(mass, 10) == pytest.approx(np.mean(distances[:4]))


def test_only_references_of_similar_length_are_compared() -> None:
    references = References(masses=np.eye(3)[[0] * 4 + [2] * 4], lengths=np.array([20] * 4 + [10] * 4))
    assert references.distance(np.array([1.0, 0.0, 0.0]), 10) == 2
    assert references.distance(np.array([1.0, 0.0, 0.0]), 20) == 0
    assert references.distance(np.array([1.0, 0.0, 0.0]), 50) == 0  # no similar length: all are compared


def test_an_own_pair_has_no_distance(german: regard.TranslationRun) -> None:
    names = feature_names(german, read_references(german, PAIRS[:1]), None)
    features = measure_features(german, PAIRS[:1], read_references(german, PAIRS[:1]))
    assert features[0, names.index("from_data")] == pytest.approx(0, abs=1e-6)


def test_a_foreign_source_raises_no_gain(german: regard.TranslationRun) -> None:
    column = feature_names(german, None, None).index("no_gain")
    own = measure_features(german, PAIRS)[:, column]
    other = measure_features(german, [(PAIRS[i - 1][0], target) for i, (_, target) in enumerate(PAIRS)])[
        :, column
    ]
    assert (other > own).mean() > 0.9


def test_a_model_without_attention_is_refused(tmp_path: Path) -> None:
    flags = write(tmp_path)
    run = regard.train(
        "translation", **flags, model="recurrent", score="none", steps=2, savepath=tmp_path, progress=False
    )
    assert isinstance(run, regard.TranslationRun)
    with pytest.raises(InputError, match="no attention to its source"):
        measure_features(run, PAIRS)


def test_features_of_probabilities_and_text_equal_loops(german: regard.TranslationRun) -> None:
    source, target = "Heute singt singt singt der Wolf.", "the wolf runs the wolf runs the wolf today."
    names = feature_names(german, None, None)
    measured = dict(zip(names, measure_features(german, [(source, target)])[0], strict=True))
    model = german.model.double()
    try:
        tokens = torch.tensor([[*german.task.target_vocabulary.encode(target), EOS]])
        begun = torch.cat([torch.tensor([[BOS]]), tokens[:, :-1]], dim=1)
        values = []
        for text in (source, ""):
            inputs = torch.tensor([[*german.task.source_vocabulary.encode(text), EOS]])
            logits = model(inputs, torch.ones_like(inputs, dtype=torch.bool), begun)
            values.append(logits.log_softmax(-1)[0, range(tokens.shape[1]), tokens[0]].tolist())
    finally:
        model.float()
    given, alone = values
    mean, prior = sum(given) / len(given), sum(alone) / len(alone)
    assert measured["improbable"] == pytest.approx(-mean, abs=1e-4)
    assert measured["weakest"] == pytest.approx(-sum(sorted(given)[:SPAN]) / SPAN, abs=1e-4)
    assert measured["no_gain"] == pytest.approx(prior - mean, abs=1e-4)
    assert measured["gain_ratio"] == pytest.approx(mean / prior, abs=1e-4)
    assert measured["repeated"] == 3 - 2  # "the wolf" three times, "singt singt" twice
    assert measured["copied"] == 0
