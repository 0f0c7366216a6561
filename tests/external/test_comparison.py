"""Comparisons of two models."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.errors import InputError
from tests.conftest import Command
from tests.external.conftest import TEXTS

pytestmark = pytest.mark.filterwarnings("ignore")


@torch.no_grad()
def test_two_checkpoints_over_the_same_texts(model_of: Callable[[str], Any], tokenizer: Any) -> None:
    before = model_of("llama")
    after = copy.deepcopy(before)
    after.model.layers[1].self_attn.q_proj.weight[:8] = 0  # head 0 of layer 1 attends uniformly
    one, other = regard.look(before, tokenizer), regard.look(after, tokenizer)
    comparison = one.compare_with(other, TEXTS)
    assert comparison.apart["model.layers.0.self_attn"] == [0, 0, 0, 0]
    assert comparison.apart["model.layers.1.self_attn"][0] > 0.05 and comparison.apart["model.layers.1.self_attn"][
        1:
    ] == [0, 0, 0]
    counts = [len(tokenizer(text)["input_ids"]) for text in TEXTS]
    even = np.mean([np.mean([np.log(row + 1) for row in range(count)]) for count in counts])
    assert comparison.entropy[1]["model.layers.1.self_attn"][0] == pytest.approx(even, abs=1e-5)
    assert comparison.added[1] == other.importance(TEXTS).added and comparison.losses[0] == one.importance(TEXTS).loss
    assert comparison.predictions[0] == (one.attend(TEXTS[0]).prediction, other.attend(TEXTS[0]).prediction)
    assert "model.layers.1.self_attn" in str(comparison) and "ten inputs or more" in str(comparison)


def test_models_with_different_losses_are_not_compared(model_of: Callable[[str], Any], tokenizer: Any) -> None:
    one, other = (regard.look(model_of(name), tokenizer) for name in ("llama", "bert"))
    with pytest.raises(InputError, match="these losses cannot be compared"):
        one.compare_with(other, TEXTS)
    guesses = regard.look(model_of("bert-mlm"), tokenizer)
    said = "has a loss of the next tokens, .* a loss of the masked tokens: these losses cannot be compared"
    with pytest.raises(InputError, match=said):
        one.compare_with(guesses, TEXTS)


def test_models_with_different_heads_are_compared_without_heads(model_of: Callable[[str], Any], tokenizer: Any) -> None:
    import transformers

    torch.manual_seed(0)
    sizes: Any = {"vocab_size": 60, "n_positions": 80, "n_embd": 32, "n_layer": 2, "n_head": 2}
    other = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()
    comparison = regard.look(model_of("llama"), tokenizer).compare_with(regard.look(other, tokenizer), TEXTS)
    assert not comparison.apart and "Not compared: model.layers.0.self_attn, model" in str(comparison)
    assert comparison.summary() in str(comparison)


def test_two_folders_on_the_command_line(folders: Callable[[str], Path], tmp_path: Path, command: Command) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    both = folders("llama"), folders("gpt2")
    status, printed, _ = command("compare", *both, "--examples", tmp_path / "texts.txt", "--json", tmp_path / "a.json")
    assert '"maps"' not in (tmp_path / "a.json").read_text()
    comparison = regard.look(both[0]).compare_with(regard.look(both[1]), TEXTS)
    kept = json.loads((tmp_path / "a.json").read_text())
    assert status == 0 and "of llama" in printed and kept["losses"] == pytest.approx(comparison.losses)
    other = "transformer.h.1.attn"  # equal number of layers with other names
    assert (
        comparison.alike["model.layers.1.self_attn"] == other and len(comparison.apart["model.layers.1.self_attn"]) == 4
    )
    row = next(line.split() for line in printed.splitlines() if "model.layers.1.self_attn" in line)
    assert row[3] == f"{comparison.added[1][other][0]:+.4f}" and row[1] == "0"
    status, _, error = command("compare", *both)
    assert (status, "give --examples FILE" in error) == (2, True)


def test_single_model_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "before").mkdir()
    way = "compare models with two folders, as in `regard compare before after --examples FILE`"
    for words, said in {
        ("gpt2",): "task 'gpt2' is unknown: choose ",
        ("before",): f"only one folder is given, 'before': {way}",
        ("before", "--examples", "a.txt"): f"only one folder is given, 'before': {way}",
        ("gpt2", "bert-base"): f"'gpt2' is not a folder: {way}",
        ("before", "after"): f"'after' is not a folder: {way}",
    }.items():
        status, _, error = command("compare", *words)
        assert (status, said in error, error.count("\n")) == (2, True, 1), error
    assert "name two folders of models" in command("compare", "gpt2")[2]
    assert "no flag to vary" in command("compare", "recall")[2]


def test_comparison_shows_maps_and_roles_of_both_models(
    model_of: Callable[[str], Any], tokenizer: Any, tmp_path: Path
) -> None:
    one, other = regard.look(model_of("llama"), tokenizer), regard.look(model_of("gptj"), tokenizer)
    texts = [f"{text} {more}" for text in TEXTS for more in ("then", "and", "on", "it")]
    comparison = one.compare_with(other, texts)
    assert comparison.roles is not None and [each.samples for each in comparison.roles] == [12, 12]
    roles = one.roles(texts)
    assert [each.description for each in comparison.roles[0].heads] == [each.description for each in roles.heads]
    page = comparison.to_html(tmp_path / "both.html").read_text()
    data = json.loads(page.partition('type="application/json">')[2].partition("</script>")[0])
    assert [each["input"] for each in data["maps"]] == texts
    assert [(each["name"], each["map"]["input"]) for each in data["beside"]] == [(other.name, text) for text in texts]


def test_two_folders_on_one_page(folders: Callable[[str], Path], tmp_path: Path, command: Command) -> None:
    page = tmp_path / "both.html"
    asked = ("look", folders("llama"), "--compare-with", folders("gptj"), "--text", TEXTS[0])
    assert command(*asked, "--plot", page)[0] == 0 and '"beside": [{"name": "gptj"' in page.read_text()
    bert = ("look", folders("llama"), "--compare-with", folders("bert"), "--text", TEXTS[0], "--plot", page)
    status, _, error = command(*bert)
    assert (status, error.count("\n")) == (2, 1)
    assert "bert has 2 layers (encoder.layer.0.attention.self, encoder.layer.1.attention.self), llama has" in error
    assert "neither the names of layers nor their numbers of any kind match" in error
    status, _, error = command(*asked, "--plot", tmp_path / "both.png")
    assert (status, "--compare_with needs a page: give --plot FILE.html" in error) == (2, True)
