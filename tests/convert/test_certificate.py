"""The certificate reports differences, and conversions with large differences are refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.convert.certificate import ForcedOutput, certify, largest_size, make_certificate, token_log_probabilities
from regard.convert.exchange import export
from regard.data.batch import PairBatch, collate
from regard.errors import InputError
from tests.conftest import Command


class Twin:
    """Return the run in the role of another program; `change` falsifies one of its answers."""

    program = "torch"
    missing: dict[str, str] = {}

    def __init__(self, run: regard.TranslationRun, change: str = "") -> None:
        self.run, self.change = run, change

    def read(self, texts: Any) -> list[list[int]]:
        return [self.run.task.source_vocabulary.encode(text) + [5] * (self.change == "read") for text in texts]

    def force(self, batch: PairBatch) -> ForcedOutput:
        with regard.record(self.run.model) as records:
            logits = self.run.model(batch.source, batch.source_mask, batch.target_in)
        weights = {name: each.weights.clone() for name, each in records.items()}
        if self.change == "logits":
            logits[0, 0, 5] += 0.001
        if self.change == "nan":
            logits[0, 0, 5] = torch.nan
        if self.change == "weights":
            weights["decoder.0.cross"][0, 1, 0, 0] += 0.001
        return ForcedOutput(token_log_probabilities(logits, batch), logits, weights)

    def translate(self, source: torch.Tensor, *, beam: int, most: int) -> list[list[int]]:
        return [[7]] * len(source)


def test_model_equals_itself(german: regard.TranslationRun, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    found = certify(german, Twin(german), ["Heute singt der alte Hund."], tmp_path, progress=False)
    found.check()
    assert found.logits == found.weights == found.log_probabilities == 0
    assert found.same_tokens == 1 and found.same_greedy == found.same_beam == 0
    assert found.hashes["file"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    [answer] = german.search(["Heute singt der alte Hund."], beam=1)
    assert found.tokens == collate([answer[0].tokens]).numel()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("read", "tokenizes 100% of 1 sentence differently"),
        ("logits", "logits differ by 0.001"),
        ("weights", "weights differ by 0.001"),
        ("nan", "differ by nan"),
    ],
)
def test_different_model_is_refused(german: regard.TranslationRun, tmp_path: Path, change: str, message: str) -> None:
    found = certify(german, Twin(german, change), ["Heute singt der alte Hund."], tmp_path, progress=False)
    with pytest.raises(InputError, match=message):
        found.check()


def test_the_limit_is_relative_to_the_largest_logit(tmp_path: Path) -> None:
    figures: dict[str, Any] = dict.fromkeys(("same_tokens", "same_greedy", "same_beam"), 1.0)
    figures |= {"sentences": 1, "tokens": 1, "log_probabilities": 0.00011, "logits": 0.0029, "missing": {}}
    found = make_certificate(tmp_path, "torch", tmp_path, largest_logit=30.0, weights=None, **figures)
    found.check()
    assert "(limit 0.003, 0.0001 of the largest logit, 30)" in found.summary()
    for size, problem in ((28.0, "logits"), (0.5, "log-probabilities")):
        found = make_certificate(tmp_path, "torch", tmp_path, largest_logit=size, weights=None, **figures)
        with pytest.raises(InputError, match=f"{problem} differ by .*, more than the limit of"):
            found.check()
    found = make_certificate(tmp_path, "torch", tmp_path, largest_logit=30.0, weights=0.00011, **figures)
    with pytest.raises(InputError, match="weights differ by 0.00011 in torch, more than the limit of 0.0001:"):
        found.check()
    assert largest_size(torch.tensor([3.0, -12.0, -torch.inf, -1e9])) == 12.0


def test_nothing_is_written_if_outputs_differ(
    german: regard.TranslationRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    pytest.importorskip("ctranslate2")
    from regard.convert import ctranslate2

    right = ctranslate2._array
    monkeypatch.setattr(ctranslate2, "_array", lambda tensor: right(tensor) * 1.01)
    status, _, err = command("export", german.folder, "--output", tmp_path / "new")
    assert status == 2 and "nothing was written" in err and list(tmp_path.iterdir()) == []


def test_custom_sentences(german: regard.TranslationRun, tmp_path: Path, command: Command) -> None:
    pytest.importorskip("ctranslate2")
    (tmp_path / "text").write_text("Heute singt der alte Hund.\n\nOft springt der Wolf.\n", encoding="utf-8")
    status, out, _ = command("export", german.folder, "--output", tmp_path / "a", "--examples", tmp_path / "text")
    assert status == 0 and "2 sentences in both programs" in out
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(InputError, match="no sentences on which to compare"):
        export(german, tmp_path / "b", examples=[])
    assert not (tmp_path / "b").exists()
