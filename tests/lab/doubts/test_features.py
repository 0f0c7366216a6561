"""Features equal plain loops over the weights of one translation, and do not depend on the batch."""

import math
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.data.vocabulary import BOS, EOS
from regard_lab.doubts.features import SMOOTHING, SPAN, FeatureReader, read_frequencies
from tests.german import sentences

PAIRS = sentences()[264:288]


@pytest.fixture(scope="module")
def reader(german: regard.TranslationRun) -> FeatureReader:
    return FeatureReader(german, read_frequencies(german, PAIRS))


def test_features_equal_loops(german: regard.TranslationRun, reader: FeatureReader) -> None:
    source, target = PAIRS[0]
    measured = dict(zip(reader.names, reader.measure(PAIRS)[0], strict=True))
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
        "contribution": _contribution(german, source, attention.layers[layer].weights),
    }
    for name, value in expected.items():
        assert measured[f"{layer} {name}"] == pytest.approx(value, abs=1e-5), name
    assert measured["improbable"] == pytest.approx(-german.score([(source, target)])[0].per_token, abs=1e-4)
    assert measured["length"] == pytest.approx(math.log((len(source) + 1) / (len(target) + 1)))


def _contribution(run: regard.TranslationRun, source: str, weights: np.ndarray) -> float:
    """Return the mean over steps of the weights (H, Tt, Ts) times the lengths of the transformed values."""
    model: Any = run.model
    tokens = torch.tensor([[*run.task.source_vocabulary.encode(source), EOS]])
    with torch.no_grad():
        memory = model.encoder(model.embedded(tokens), torch.ones(1, 1, tokens.shape[1], dtype=torch.bool))[0]
        [layer] = model.decoder.layers
        width, total = layer.cross.head_width, 0.0
        for head in range(layer.cross.heads):
            part = slice(head * width, (head + 1) * width)
            for place, state in enumerate(memory):
                value = layer.cross.output.weight[:, part] @ layer.cross.value(state)[part]
                total += float(value.norm()) * weights[head, :, place].sum()
    return total / weights.shape[1]


def test_features_do_not_depend_on_the_batch(reader: FeatureReader) -> None:
    together = reader.measure(PAIRS)
    alone = np.concatenate([reader.measure([pair]) for pair in PAIRS])
    assert together == pytest.approx(alone, abs=1e-4)


def test_traces_of_a_search_have_the_features_of_a_second_pass(
    german: regard.TranslationRun, reader: FeatureReader
) -> None:
    sources = [source for source, _ in PAIRS]
    answers = [best for best, *_ in german.search(sources, traced=True)]
    traces = [answer.trace for answer in answers]
    assert all(traces)
    pairs = [(source, answer.text) for source, answer in zip(sources, answers, strict=True)]
    traces[3:6] = [None] * 3
    assert reader.measure(pairs, traces) == pytest.approx(reader.measure(pairs), abs=1e-4)


def test_a_foreign_source_raises_no_gain(reader: FeatureReader) -> None:
    column = reader.names.index("no_gain")
    own = reader.measure(PAIRS)[:, column]
    other = reader.measure([(PAIRS[i - 1][0], target) for i, (_, target) in enumerate(PAIRS)])[:, column]
    assert (other > own).mean() > 0.9


def test_features_of_probabilities_and_text_equal_loops(german: regard.TranslationRun, reader: FeatureReader) -> None:
    source, target = "Heute singt singt singt der Wolf.", "the wolf runs the wolf runs the wolf today."
    measured = dict(zip(reader.names, reader.measure([(source, target)])[0], strict=True))
    [given], [tokens] = _predictions(german, [(source, target)])
    values = given[range(len(tokens)), tokens]
    assert measured["improbable"] == pytest.approx(-values.mean(), abs=1e-4)
    assert measured["least"] == pytest.approx(-values.min(), abs=1e-4)
    assert measured["weakest"] == pytest.approx(-np.sort(values)[:SPAN].mean(), abs=1e-4)
    assert measured["uneven"] == pytest.approx(values.std(), abs=1e-4)
    total = np.exp(np.concatenate(_predictions(german, PAIRS)[0])).sum(0) + SMOOTHING
    usual = np.log(total / total.sum())
    assert measured["no_gain"] == pytest.approx((usual[tokens] - values).mean(), abs=1e-4)
    assert measured["repeated"] == 3 - 2  # "the wolf" three times, "singt singt" twice
    assert measured["copied"] == 0


def _predictions(run: regard.TranslationRun, pairs: list[tuple[str, str]]) -> tuple[list[np.ndarray], list[list[int]]]:
    """Return the log-probabilities (T, V) at the steps of each target, and its tokens with the end."""
    model = run.model.double()
    predictions, tokens = [], []
    try:
        for source, target in pairs:
            inputs = torch.tensor([[*run.task.source_vocabulary.encode(source), EOS]])
            own = [*run.task.target_vocabulary.encode(target), EOS]
            with torch.no_grad():
                logits = model(inputs, torch.ones_like(inputs, dtype=torch.bool), torch.tensor([[BOS, *own[:-1]]]))
            predictions.append(logits[0].log_softmax(-1).numpy())
            tokens.append(own)
    finally:
        model.float()
    return predictions, tokens


def test_the_opposite_run_reads_blank_and_long_translations(german: regard.TranslationRun) -> None:
    source, target = PAIRS[0]
    reader = FeatureReader(german, read_frequencies(german, PAIRS), reverse=german)
    most = german.task.longest_source
    long = " ".join([target] * most)
    pairs = [(source, target), (source, ""), (source, long), (source, long + target)]
    column = reader.measure(pairs)[:, reader.names.index("reverse")]
    assert column[0] == pytest.approx(-german.score([(target, source)])[0].per_token, abs=1e-6)
    assert column[1] == pytest.approx(math.log(len(german.task.target_vocabulary)))
    assert np.isfinite(column).all() and column[2] == pytest.approx(column[3], abs=1e-6)
