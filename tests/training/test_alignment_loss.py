"""The alignment loss equals values computed by hand, and a guided head learns to align."""

from pathlib import Path
from typing import Any, cast

import pytest
import torch

import regard
from regard import record
from regard.data.batch import PairBatch, collate
from regard.data.word_alignment import parse_moses
from regard.errors import InputError
from regard.models.transformer import Transformer, TransformerConfig
from regard.training.objective import guided_layer, record_alignment_loss
from tests.conftest import TINY
from tests.german import LINKS, write


def test_alignment_loss_by_hand() -> None:
    """The loss equals equation 5 of Garg et al. 2019 for the first head of the penultimate layer, before
    dropout.
    """
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


def test_guided_head_aligns_and_is_the_default(
    guided: regard.TranslationRun, german: regard.TranslationRun
) -> None:
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


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ({"merge_dropout": 0.1}, "guide aligns tokens, which merge_dropout changes: leave out one"),
        ({"guide_weight": -1.0}, "guide_weight -1.0 is out of range: choose from 0 to 1000"),
        ({"model": "recurrent", "score": "none"}, "guide needs attention to the source"),
    ],
)
def test_options_that_exclude_guide_are_refused(tmp_path: Path, others: dict[str, object], told: str) -> None:
    flags = write(tmp_path)
    (tmp_path / "links").write_text(f"{LINKS}\n" * 240)
    train: Any = regard.train
    with pytest.raises(InputError, match=told):
        train(
            "translation", **flags, guide=tmp_path / "links", steps=2, savepath=tmp_path, progress=False, **others
        )
