"""Alignment error rates against known alignments."""

import math

import pytest
import torch

import regard
from regard import record
from regard.interpret.alignment import alignment, error_rate
from regard.tasks.pairs import Pair


def test_a_worked_example() -> None:
    """The four target steps are a sure hit, a sure miss, a possible hit, and a step of unknown origin."""
    known = torch.tensor([[[1, 0, 0], [0, 1, 0], [0, 1, 1], [0, 0, 0]]], dtype=torch.bool)
    weights = torch.tensor([[[0.6, 0.3, 0.1], [0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [0.9, 0.1, 0.0]]])
    # |A| = 3, |S| = 2; A and S: 1; A and P: 2.
    assert error_rate(weights, known) == pytest.approx(1 - (1 + 2) / (3 + 2))


def test_limits_of_the_error_rate() -> None:
    known = torch.eye(3, dtype=torch.bool)[None]
    assert error_rate(torch.eye(3)[None], known) == 0.0
    assert error_rate(torch.eye(3)[None].roll(1, 2), known) == 1.0
    assert math.isnan(error_rate(torch.eye(3)[None], torch.zeros_like(known)))


def test_alignment_of_a_model_matches_a_loop(translator: regard.PairRun) -> None:
    generator = torch.Generator().manual_seed(0)
    pairs = translator.task.pairs(30, generator)
    result = alignment(translator.model, translator.task, [pairs[:7], pairs[7:]])["decoder.cross"]
    hits = sure_hits = links = sure = 0
    share, uniform = [], []
    for pair in pairs:
        weights = _weights(translator, pair)
        for step, positions in enumerate(pair.alignment):
            if not positions:
                continue
            best = int(weights[step].argmax())
            links += 1
            hits += best in positions
            sure += len(positions) == 1
            sure_hits += len(positions) == 1 and best in positions
            share.append(float(weights[step, list(positions)].sum()))
            uniform.append(len(positions) / (len(pair.source) + 1))
    assert result.error_rate == pytest.approx(1 - (hits + sure_hits) / (links + sure), abs=1e-6)
    assert result.share == pytest.approx(sum(share) / len(share), abs=1e-5)
    assert result.uniform == pytest.approx(sum(uniform) / len(uniform), abs=1e-6)


def _weights(run: regard.PairRun, pair: Pair) -> torch.Tensor:
    batch = run.task.batch([pair])
    with torch.inference_mode(), record(run.model) as records:
        run.model(batch.source, batch.source_mask, batch.target_in)
    return records["decoder.cross"].weights[0, 0]


def test_a_model_without_attention_has_no_alignment(tmp_path_factory: pytest.TempPathFactory) -> None:
    run = regard.train(
        "copy",
        score="none",
        hidden=4,
        steps=1,
        savepath=tmp_path_factory.mktemp("models"),
        progress=False,
    )
    assert isinstance(run, regard.PairRun)
    report = run.test(samples=5)
    assert report.alignments == {} and "alignment" not in str(report)
