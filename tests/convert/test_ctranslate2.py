"""Transformers that are exported to CTranslate2 produce the same translations."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

import regard
from regard.convert.certificate import read_certificate
from regard.convert.exchange import export
from regard.errors import InputError
from tests.conftest import TINY, Command
from tests.german import sentences, write

ctranslate2 = pytest.importorskip("ctranslate2")


def check_same(run: regard.TranslationRun, folder: Path) -> None:
    sources = [source for source, _ in sentences()[:100]]
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "source.json"))
    translator = ctranslate2.Translator(str(folder), compute_type="float32")
    tokens = [tokenizer.encode(source).tokens for source in sources]
    theirs = translator.translate_batch(tokens, beam_size=1, disable_unk=True)
    ours = [best for best, *_ in run.search(sources, beam=1)]
    written = [run.task.target_vocabulary.labels(each.tokens) for each in ours]
    ended = [index for index, each in enumerate(ours) if each.finished]  # the others are truncated elsewhere
    assert len(ended) > 50
    assert [written[index] for index in ended] == [theirs[index].hypotheses[0] for index in ended]
    scored = translator.score_batch(tokens, written)
    for one, other in ((ours[index], scored[index]) for index in ended):
        assert sum(other.log_probs) == pytest.approx(one.log_probability, rel=1e-3, abs=1e-3)


def test_translations_are_equal(german: regard.TranslationRun, tmp_path: Path) -> None:
    folder = export(german, tmp_path / "exported", progress=False)
    check_same(german, folder)
    certificate = read_certificate(folder)
    assert certificate.sentences == 24 and certificate.same_greedy == 1
    assert (certificate.same_beam or 0) > 0.9  # the two stop by different rules
    assert 0 < certificate.log_probabilities < 1e-4 and certificate.logits is certificate.weights is None
    assert certificate.missing.keys() == {"logits", "weights"}
    assert certificate.hashes.keys() >= {"run/model.safetensors", "model.bin", "source.json"}


@pytest.mark.parametrize(
    "flags", [{"joint": False, "pre_norm": False, "positions": "learned", "dec_layers": 2}, {"positions": "rotary"}]
)
def test_variants_of_transformers_are_exported(tmp_path: Path, flags: dict[str, Any]) -> None:
    run = regard.train(
        "translation", **write(tmp_path), **{**TINY, **flags}, steps=150, savepath=tmp_path, progress=False
    )
    assert isinstance(run, regard.TranslationRun)
    check_same(run, export(run, tmp_path / "exported"))


def test_command_and_its_refusals(
    german: regard.TranslationRun,
    translator: regard.PairRun,
    trained: regard.AnswerRun,
    tmp_path: Path,
    command: Command,
) -> None:
    status, out, _ = command("export", german.folder, "--output", tmp_path / "new")
    assert status == 0 and str(tmp_path / "new") in out and (tmp_path / "new" / "model.bin").is_file()
    status, _, err = command("export", german.folder, "--output", tmp_path / "new")
    assert status == 2 and "exists: choose another --output" in err
    for run, message in ((translator, "is not a Transformer for translation"), (trained, "answers with numbers")):
        status, _, err = command("export", run.folder, "--output", tmp_path / "other")
        assert status == 2 and message in err and not (tmp_path / "other").exists()


def test_concatenated_positions_are_refused(tmp_path: Path) -> None:
    flags = {**TINY, "positions": "concatenated", "steps": 1}
    run = regard.train("translation", **write(tmp_path), **flags, savepath=tmp_path, progress=False)
    assert isinstance(run, regard.TranslationRun)
    with pytest.raises(InputError, match="not positions concatenated with score scaled_dot"):
        export(run, tmp_path / "exported")


@pytest.mark.parametrize("head", [0, 1])
def test_attention_is_that_of_the_selected_head(german: regard.TranslationRun, tmp_path: Path, head: int) -> None:
    """CTranslate2 returns the attention of the selected head at the step of each written token."""
    run = dataclasses.replace(german, folder=shutil.copytree(german.folder, tmp_path / "run"))
    chosen = {"heads": [["decoder.layers.0.cross", head]], "shifted": False}
    ways = {"head": {**chosen, "shifted": True}, "all": chosen}
    kept = {"format": "regard-alignment/1", "step": run.step, "best": "all", "ways": ways, "writing": chosen}
    run.files.write_derived("alignment.json", {**kept, "report": {}})
    folder = export(run, tmp_path / "exported", progress=False)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "source.json"))
    translator = ctranslate2.Translator(str(folder), compute_type="float32")
    source = sentences()[3][0]
    [found] = translator.translate_batch(
        [tokenizer.encode(source).tokens], beam_size=1, return_attention=True, disable_unk=True
    )
    theirs = np.array(found.attention[0])  # without both end symbols
    ours = run.attend(source, beam=1).layers["decoder.0.cross"].weights[head]
    np.testing.assert_allclose(theirs, ours[: theirs.shape[0], : theirs.shape[1]], atol=1e-5)
