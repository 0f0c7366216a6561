"""Shares of weight by head, compared with loops over the recorded weights."""

import math

import pytest
import torch

import regard
from regard.streams import make_generator
from regard_lab.cards.probe_training import build_model
from regard_lab.cards.probes import PROBES
from regard_lab.cards.weight_shares import FIRST_ROW, measure_shares


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
            first, on_relevant, entropy, total = [], [], [], []
            for sample in range(len(batch.inputs)):
                for row in range(length):
                    values = weights[sample, head, row].tolist()
                    parts = [value / sum(values) for value in values]
                    if row >= int(FIRST_ROW * length):
                        first.append(parts[0])
                    if batch.is_output[sample, row] and relevant[sample, row].any():
                        on_relevant.append(
                            sum(part for part, known in zip(parts, relevant[sample, row], strict=True) if known)
                        )
                        entropy.append(-sum(part * math.log(part) for part in parts if part > 0))
                        total.append(sum(values))
            assert shares.relevant is not None
            for measured, expected in (
                (shares.first, first),
                (shares.relevant, on_relevant),
                (shares.entropy, entropy),
                (shares.total, total),
            ):
                assert measured[layer][head] == pytest.approx(sum(expected) / len(expected), abs=2e-6)
