"""Loss of a batch, and schedule of teacher forcing."""

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.data.batch import PairBatch, collate
from regard.decoding.search import greedy_search
from regard.errors import InputError
from regard.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
from regard.models.transformer import Transformer, TransformerConfig
from regard.training.objective import make_objective, teacher_forcing
from regard.training.settings import TrainingConfig


def make() -> tuple[RecurrentSeq2Seq, PairBatch]:
    torch.manual_seed(0)
    model = RecurrentSeq2Seq(RecurrentConfig(hidden=6, embedding=3), source_symbols=8, target_symbols=8)
    return model, PairBatch(collate([[4, 5, 6], [7]]), collate([[4, 4], [5, 6, 7]]))


def test_the_loss_is_the_mean_over_target_tokens() -> None:
    model, pairs = make()
    loss, _ = make_objective(model, TrainingConfig(), torch.Generator())(pairs, 0, pairs.tokens)
    logits = model(pairs.source, pairs.source_mask, pairs.target_in)
    each = [
        F.cross_entropy(logits[row, step], pairs.target[row, step])
        for row, length in enumerate((3, 4))
        for step in range(length)
    ]
    torch.testing.assert_close(loss, torch.stack(each).mean())


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_r_drop_compares_two_passes(dropout: float) -> None:
    torch.manual_seed(0)
    config = TransformerConfig(hidden=8, heads=2, inner=8, enc_layers=1, dec_layers=1, dropout=dropout)
    model, pairs = Transformer(config, source_symbols=8, target_symbols=8, longest=9, shared=True), make()[1]

    def loss(r_drop: float) -> torch.Tensor:
        torch.manual_seed(1)
        settings = TrainingConfig(r_drop=r_drop, label_smoothing=0.1)
        found: torch.Tensor = make_objective(model, settings, torch.Generator())(pairs, 0, 7)[0]
        return found

    disagreement = loss(2.0) - loss(1.0)
    if dropout:
        assert disagreement > 0.01
        torch.testing.assert_close(loss(5.0) - loss(2.0), 3 * disagreement, atol=1e-5, rtol=0)
    else:
        torch.testing.assert_close(loss(5.0), loss(0.0))


def test_accuracy_under_teacher_forcing_equals_greedy_exact_match(translator: regard.PairRun) -> None:
    pairs = translator.task.pairs(200, torch.Generator().manual_seed(1))
    batch = translator.task.batch(pairs)
    objective = make_objective(translator.model, TrainingConfig(), torch.Generator())
    with torch.inference_mode():
        right = objective(batch, 0, batch.tokens)[1].tolist()
    found = greedy_search(translator.model, batch.source, batch.source_mask, max_len=20)
    texts = [translator.task.target_vocabulary.decode(each.tokens) for each in found]
    assert right == [text == pair.target for text, pair in zip(texts, pairs, strict=True)]
    assert 0 < sum(right) < 200  # the test must not be trivial


def test_teacher_forcing_falls_linearly() -> None:
    settings = TrainingConfig(steps=101, teacher_forcing=0.2)
    target = torch.zeros(400, 25, dtype=torch.int64)
    for step, share in ((0, 1.0), (50, 0.6), (100, 0.2)):
        forced = teacher_forcing(settings, target, torch.Generator().manual_seed(step), step)
        assert forced is not None and forced.float().mean().item() == pytest.approx(share, abs=0.02)
    assert teacher_forcing(TrainingConfig(), target, torch.Generator(), 50) is None


def test_teacher_forcing_out_of_range_is_refused() -> None:
    with pytest.raises(InputError, match="teacher_forcing 1.5 is out of range"):
        TrainingConfig(teacher_forcing=1.5)
