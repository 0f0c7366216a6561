"""Training of a probe: repeatable, with shared initial values, and with shares that are right by hand."""

from dataclasses import asdict, replace

import pytest
import torch

from regard.errors import InputError
from regard.streams import make_generator
from regard_lab.cards.probe_training import BASELINE, build_model, train_probe
from regard_lab.cards.probes import PROBES, card_probes
from regard_lab.cards.weight_shares import measure_shares


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


def test_shares_of_uniform_attention() -> None:
    probe = PROBES["copy"]
    task = probe.build_task()
    model = build_model(BASELINE, probe, task, 0).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("query.weight"):
                parameter.zero_()
    batch = task.sample(4, make_generator(0, "test"), sample_len=8)
    _, shares = measure_shares(model, task, batch)
    rows = torch.arange(5, 9, dtype=torch.float64)  # each row from the separator on attends to this many inputs
    assert shares.relevant is not None
    for layer in range(2):
        assert shares.relevant[layer] == pytest.approx([(1 / rows).mean().item()] * 4, abs=1e-5)
        assert shares.first[layer] == pytest.approx([(1 / rows).mean().item()] * 4, abs=1e-5)
        assert shares.entropy[layer] == pytest.approx([rows.log().mean().item()] * 4, abs=1e-5)
        assert shares.total[layer] == pytest.approx([1.0] * 4, abs=1e-5)


def test_mechanism_that_does_not_fit() -> None:
    with pytest.raises(InputError, match="attention part"):
        train_probe("nothing", PROBES["copy"], 0, steps=1)


def test_digest_covers_settings() -> None:
    probe = PROBES["copy"]
    digests = {probe.digest(), probe.digest(7), replace(probe, lr=0.1).digest(), replace(probe, heads=2).digest()}
    assert len(digests) == 4
    assert replace(probe, summary="other words").digest() == probe.digest()
