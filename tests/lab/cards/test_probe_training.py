"""Training of a probe: repeatable, with shared initial values, and with shares that are right by hand."""

import math
from dataclasses import asdict, replace

import pytest
import torch

import regard
from regard.errors import InputError
from regard.streams import make_generator
from regard_lab.cards.cells import BASELINE, FIRST_ROW, build_model, measure_shares, train_probe
from regard_lab.cards.probes import PROBES, card_probes


@pytest.mark.parametrize("probe", card_probes())
def test_training_is_repeatable(probe: str) -> None:
    first, second = (asdict(train_probe("sink", PROBES[probe], 1, steps=3)) for _ in range(2))
    first.pop("seconds"), second.pop("seconds")
    assert first == second
    assert set(first["tests"]) == set(PROBES[probe].tests)
    assert not first["normalized"]


def test_result_does_not_depend_on_threads() -> None:
    threads = torch.get_num_threads()
    results = []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            results.append(train_probe(BASELINE, PROBES["copy"], 0, steps=3).tests)
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(threads)
    assert results[0] == results[1]


def test_more_steps_learn_more() -> None:
    probe = replace(PROBES["reverse"], tests={"": 24})
    short, long = (train_probe(BASELINE, probe, 0, steps=steps) for steps in (5, 120))
    assert long.tests[""].score > short.tests[""].score + 0.05
    assert long.train_loss < short.train_loss


def test_initial_values_are_shared() -> None:
    probe = PROBES["text"]
    task = probe.build_task()
    softmax, latent = (build_model(text, probe, task, 3).state_dict() for text in (BASELINE, "multi_query,sink"))
    attention = "decoder.layers.0.self_attention"
    assert torch.equal(softmax[f"{attention}.query.weight"], latent[f"{attention}.query.weight"])
    assert latent[f"{attention}.key.weight"].shape != softmax[f"{attention}.key.weight"].shape
    other = build_model(BASELINE, probe, task, 4).state_dict()
    assert not torch.equal(softmax["embedding.weight"], other["embedding.weight"])


def test_mechanism_that_does_not_fit() -> None:
    with pytest.raises(InputError, match="attention part"):
        train_probe("nothing", PROBES["copy"], 0, steps=1)


def test_digest_covers_settings() -> None:
    probe = PROBES["copy"]
    digests = {probe.digest(), probe.digest(7), replace(probe, lr=0.1).digest(), replace(probe, heads=2).digest()}
    assert len(digests) == 4
    assert replace(probe, summary="other words").digest() == probe.digest()


@pytest.mark.parametrize("mechanism", ["softmax", "sink", "differential"])
def test_shares_are_the_means_over_rows_of_each_head(mechanism: str) -> None:
    probe = PROBES["induction"]
    task = probe.build_task()
    model = build_model(mechanism, probe, task, seed=3).eval()
    batch = task.sample(5, make_generator(3, "test"), unseen=True)
    with torch.no_grad(), regard.record(model) as records:
        logits = model(batch.inputs)
    with torch.no_grad():
        measured_logits, shares = measure_shares(model, task, batch)
    torch.testing.assert_close(measured_logits, logits)
    relevant = task.relevance(batch.inputs)
    length = batch.inputs.shape[1]
    for layer, name in enumerate(model.cross_layers):
        weights = records[name].weights.double().abs()
        for head in range(weights.shape[1]):
            first, on_relevant, entropy, total, first_weight = [], [], [], [], []
            for sample in range(len(batch.inputs)):
                for row in range(length):
                    values = weights[sample, head, row].tolist()
                    parts = [value / sum(values) for value in values]
                    if row >= int(FIRST_ROW * length):
                        first.append(parts[0])
                        first_weight.append(values[0])
                    if batch.is_output[sample, row] and relevant[sample, row].any():
                        on_relevant.append(
                            sum(part for part, known in zip(parts, relevant[sample, row], strict=True) if known)
                        )
                        entropy.append(-sum(part * math.log(part) for part in parts if part > 0))
                        total.append(sum(values))
            assert shares.relevant is not None and shares.first_weight is not None
            for measured, expected in (
                (shares.first, first),
                (shares.relevant, on_relevant),
                (shares.entropy, entropy),
                (shares.total, total),
                (shares.first_weight, first_weight),
            ):
                assert measured[layer][head] == pytest.approx(sum(expected) / len(expected), abs=2e-6)
