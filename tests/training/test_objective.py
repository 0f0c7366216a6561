"""Loss of a batch, and schedule of teacher forcing."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import regard
from regard import record
from regard.data.batch import PairBatch, collate
from regard.data.word_alignment import parse_moses
from regard.decoding.search import greedy_search
from regard.errors import InputError
from regard.models.recurrent import RecurrentConfig, RecurrentSeq2Seq
from regard.models.transformer import Transformer, TransformerConfig
from regard.training import objective as loss
from regard.training.config import TrainingConfig
from regard.training.objective import (
    cross_entropy,
    guided_layer,
    make_objective,
    record_alignment_loss,
    teacher_forcing,
)
from tests.conftest import TINY
from tests.german import LINKS, write


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


def make_inputs(
    steps: int, bias: bool, dtype: torch.dtype = torch.float64, passes: int = 1
) -> tuple[list[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(steps)
    shapes = [(passes, steps, 5), (11, 5), *([(11,)] if bias else [])]
    parts = [torch.randn(shape, generator=generator, dtype=dtype, requires_grad=True) for shape in shapes]
    return parts, torch.randint(11, (steps,), generator=generator)


@pytest.mark.parametrize("steps", [1, 3, 4, 9])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_agrees_with_pytorch(monkeypatch: pytest.MonkeyPatch, steps: int, bias: bool, smoothing: float) -> None:
    monkeypatch.setattr(loss, "CHUNK", 4 * 11 * 8)
    parts, target = make_inputs(steps, bias)
    logits = F.linear(*parts)[0]
    expected = F.cross_entropy(logits, target, reduction="sum", label_smoothing=smoothing)
    grads = torch.autograd.grad(3 * expected, parts)
    layer = (parts[1], parts[2] if bias else None)
    found, right = cross_entropy(parts[0], layer, target, smoothing)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    for ours, theirs in zip(torch.autograd.grad(3 * found, parts), grads, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)
    assert torch.equal(right, logits.argmax(1) == target)


@pytest.mark.parametrize("steps", [1, 4, 9])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("agreement", [0.0, 5.0])
def test_two_passes_agree_with_pytorch(
    monkeypatch: pytest.MonkeyPatch, steps: int, bias: bool, agreement: float
) -> None:
    """The loss of R-Drop is the loss of both passes plus half of alpha multiplied by the sum of both divergences."""
    monkeypatch.setattr(loss, "CHUNK", 4 * 11 * 8)
    parts, target = make_inputs(steps, bias, passes=2)
    logits = F.linear(*parts)
    one, two = logits.log_softmax(-1)
    both = target.repeat(2)
    expected = F.cross_entropy(logits.flatten(0, 1), both, reduction="sum", label_smoothing=0.1)
    for there, back in ((one, two), (two, one)):
        expected += agreement / 2 * F.kl_div(there, back, log_target=True, reduction="sum")
    grads = torch.autograd.grad(expected, parts)
    found, right = cross_entropy(parts[0], (parts[1], parts[2] if bias else None), target, 0.1, agreement)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    for ours, theirs in zip(torch.autograd.grad(found, parts), grads, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)
    assert torch.equal(right, logits[0].argmax(1) == target)


@pytest.mark.parametrize(("passes", "agreement"), [(1, 0.0), (2, 0.0), (2, 3.0)])
def test_gradients_by_differences(passes: int, agreement: float) -> None:
    parts, target = make_inputs(6, True, passes=passes)

    def summed(states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return cross_entropy(states, (weight, bias), target, 0.1, agreement)[0]

    assert torch.autograd.gradcheck(summed, parts)


def test_extreme_logits_stay_finite() -> None:
    states = torch.tensor([[[1e4, 0.0], [0.0, 0.0]]], requires_grad=True)
    weight = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    found, _ = cross_entropy(states, (weight, None), torch.tensor([0, 2]))
    assert found.item() == pytest.approx(2e4, rel=1e-3)
    found.backward()
    assert states.grad is not None and torch.isfinite(states.grad).all()


def test_empty_target() -> None:
    parts, target = make_inputs(0, False)
    found, right = cross_entropy(parts[0], (parts[1], None), target)
    found.backward()
    assert found.item() == 0 and not len(right)
    assert parts[1].grad is not None and not parts[1].grad.any()


def test_bfloat16_products_are_close() -> None:
    parts, target = make_inputs(50, True, torch.float32)
    exact, _ = cross_entropy(parts[0], (parts[1], parts[2]), target, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = cross_entropy(parts[0], (parts[1], parts[2]), target, 0.1)
    assert found.dtype == torch.float32 and found.item() == pytest.approx(exact.item(), rel=1e-2)
    ours, theirs = torch.autograd.grad(found, parts[0]), torch.autograd.grad(exact, parts[0])
    torch.testing.assert_close(ours[0], theirs[0], atol=0.05, rtol=0.05)


@pytest.mark.parametrize(
    ("offset", "within"), [(0.0, 0.02), (-9.0, 0.05), (-60.0, 0.4), (60.0, 0.4)], ids=["around", "below", "far", "high"]
)
def test_bfloat16_finds_the_largest_logit_of_any_sign(offset: float, within: float) -> None:
    """The loss is exact for logits around zero, for negative logits, and for logits at which bfloat16 is coarse."""
    (states, weight, bias), target = make_inputs(40, True, torch.float32)
    layer = (weight, (bias + offset).detach().requires_grad_())
    found, right = [], []
    for narrow in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            loss_, right_ = cross_entropy(states, layer, target, 0.1)
        found.append((loss_, *torch.autograd.grad(loss_, (states, weight, layer[1]))))
        right.append(right_)
    for ours, exact in zip(found[1], found[0], strict=True):
        assert (ours - exact).norm() < within * exact.norm()
    assert (right[0] == right[1]).float().mean() > 1 - 2 * within


def test_calls_of_other_sizes_and_threads_are_independent() -> None:
    """Calls share memory, but do not depend on its previous content."""
    made = [make_inputs(steps, True, torch.float32, passes) for steps, passes in ((9, 1), (3, 2), (17, 1), (9, 1))]

    def run(index: int) -> list[Tensor]:
        parts, target = made[index]
        found, _ = cross_entropy(parts[0], (parts[1], parts[2]), target, 0.1, 3.0 if len(parts[0]) == 2 else 0.0)
        return [found.detach(), *torch.autograd.grad(found, parts)]

    alone = [run(index) for index in range(len(made))]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, [index for _ in range(8) for index in range(len(made))]))
    for index, each in enumerate(together):
        for ours, expected in zip(each, alone[index % len(made)], strict=True):
            assert torch.equal(ours, expected)


def test_no_gradients_without_grad_mode() -> None:
    parts, target = make_inputs(5, False)
    with torch.no_grad():
        found, _ = cross_entropy(parts[0], (parts[1], None), target)
    assert not found.requires_grad


def test_alignment_loss_by_hand() -> None:
    """The loss equals equation 5 of Garg et al. 2019 for the first head of the penultimate layer, before dropout."""
    torch.manual_seed(0)
    config = TransformerConfig(hidden=8, heads=2, enc_layers=1, dec_layers=3, dropout=0.5)
    model = Transformer(config, source_symbols=9, target_symbols=9, longest=9)
    assert guided_layer(model) == "decoder.layers.1.cross"
    batch = PairBatch(collate([[5, 6, 7], [8]]), collate([[5, 6], [7]]))
    aims = torch.rand(2, 3, 4) * batch.source_mask[:, None]
    model.train()
    with record_alignment_loss(model, aims) as astray, record(model.eval()) as records:
        model(batch.source, batch.source_mask, batch.target_in)
    weights = records["decoder.layers.1.cross"].weights[:, 0]
    expected = -(aims * weights.clamp_min(1e-9).log()).sum()
    assert len(astray) == 1
    torch.testing.assert_close(astray[0], expected)
    astray[0].backward()
    gradient = model.get_parameter("decoder.layers.1.cross.query.weight").grad
    assert gradient is not None and gradient[:4].any() and not gradient[4:].any()  # the first head only
    with record_alignment_loss(model, None) as nothing:
        model(batch.source, batch.source_mask, batch.target_in)
    assert nothing == []


@pytest.fixture(scope="module")
def guided(tmp_path_factory: pytest.TempPathFactory) -> regard.TranslationRun:
    folder = tmp_path_factory.mktemp("guided")
    flags = write(folder)
    (folder / "links").write_text(f"{LINKS}\n" * 240)
    train: Any = regard.train
    run = train(
        "translation",
        **flags,
        **(TINY | {"dec_layers": 2}),
        guide=folder / "links",
        guide_weight=0.3,
        steps=200,
        savepath=folder,
        progress=False,
    )
    assert isinstance(run, regard.TranslationRun)
    return run


def test_guided_head_aligns_and_is_the_default(guided: regard.TranslationRun, german: regard.TranslationRun) -> None:
    pairs = guided.unseen(24, 0)
    known = parse_moses(LINKS, "here").sure
    heads = guided.kept_heads()
    assert heads is not None and heads.ways[heads.best].heads == (("decoder.layers.0.cross", 0),)
    found = [set(each.links) for each in guided.align(pairs)]
    right = sum(len(links & known) for links in found) / (len(known) * len(pairs))
    assert right > 0.9
    assert german.kept_heads() is None


def test_recurrent_decoder_is_guided_stepwise(tmp_path: Path) -> None:
    flags = write(tmp_path)
    (tmp_path / "links").write_text(f"{LINKS}\n" * 240)
    few = {"model": "recurrent", "hidden": 8, "embedding": 8, "vocab_size": 60, "steps": 1, "progress": False}
    losses, train = [], cast(Any, regard.train)
    for guide_weight in (0.0, 0.5):
        run = train(
            "translation",
            **(flags | few),
            guide=tmp_path / "links",
            guide_weight=guide_weight,
            savepath=tmp_path / str(guide_weight),
        )
        losses.append(run.metrics[-1]["loss"])
    assert losses[1] > losses[0]


def test_a_model_without_attention_is_not_guided(tmp_path: Path) -> None:
    (tmp_path / "links").write_text(f"{LINKS}\n" * 240)
    flags: dict[str, Any] = {"model": "recurrent", "score": "none", "guide": tmp_path / "links", "progress": False}
    with pytest.raises(InputError, match="guide needs attention to the source"):
        regard.train("translation", **write(tmp_path), **flags, savepath=tmp_path)
