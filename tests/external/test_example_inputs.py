"""Example inputs come from the model card, or match the model; documented examples run unchanged."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.errors import InputError
from regard.external.example_inputs import FROM_CARD, OWN, SENTENCES
from regard.external.model_input import as_inputs

Folder = Callable[[str], Path]


@pytest.fixture
def copied(folders: Folder, tmp_path: Path) -> Folder:
    """Copy the folder of a small model, so that a test can add a card."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(folders(name), tmp_path / name))

    return copy


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt2", "The dog did not cross the street because it was too"),
        ("bert-mlm", "The dog did not cross the street because it was too <mask>."),
        ("marian", "The dog did not cross the street because it was too tired."),
        ("vit-classes", "house (drawn)"),
    ],
)
def test_a_kind_of_model_has_its_example(folders: Folder, name: str, expected: str) -> None:
    subject = regard.look(folders(name))
    assert subject.example == expected and subject.examples.origin == OWN
    assert subject.attend(subject.example).layers
    assert subject.about()["texts"] == list(subject.examples.inputs) and len(subject.examples.inputs) >= 2
    assert subject.roles(subject.examples.inputs).heads


def test_a_translator_has_a_sentence_of_its_source_language(copied: Folder) -> None:
    folder = copied("marian")
    for header, expected, origin in (
        ("language: de", SENTENCES["de"][0].replace("{", "").replace("}", ""), OWN),
        ("language: fi", "The dog did not cross", f"{OWN}, in English, not in fi"),
        ("pipeline_tag: summarization", "The town library", OWN),
    ):
        (folder / "README.md").write_text(f"---\n{header}\n---\n# A model\n")
        subject = regard.look(folder)
        assert subject.example is not None and subject.example.startswith(expected)
        assert subject.examples.origin == origin


def test_a_card_gives_the_examples_that_the_model_takes(copied: Folder) -> None:
    folder = copied("gpt2")
    texts = ["the cat sat", "the dog " * 999, "", "a big dog"]
    (folder / "README.md").write_text(f"---\nwidget: {json.dumps([{'text': text} for text in texts])}\n---\n")
    subject = regard.look(folder)
    assert subject.examples == (("the cat sat", "a big dog"), FROM_CARD) and subject.example == "the cat sat"


@pytest.mark.parametrize("card", ["", "---\nwidget: [\n---\n", "---\n- 1\n---\n", "---\nwidget: 3\n", "no header"])
def test_without_a_readable_card_the_example_is_regards_own(copied: Folder, card: str) -> None:
    folder = copied("gpt2")
    (folder / "README.md").write_text(card)
    assert regard.look(folder).examples.origin == OWN


def test_inputs_of_the_user_replace_the_examples(model_of: Any, tokenizer: Any) -> None:
    subject = regard.look(model_of("gpt2"), tokenizer, inputs=["the cat sat", "a dog"])
    facts = subject.about()
    assert facts["texts"] == ["the cat sat", "a dog"] and facts["origin_of_texts"] == "" and facts["draws"]


def test_a_custom_model_has_no_example(model_of: Any) -> None:
    subject = regard.look(model_of("gpt2"), lambda text: {"input_ids": text})
    assert subject.example is None


def test_a_subject_over_labels_uses_these_inputs(folders: Folder, tmp_path: Path) -> None:
    subject = regard.look(folders("vit-classes"))
    assert subject.with_inputs([]) is subject
    assert subject.with_inputs(subject.examples.inputs).inputs == as_inputs(subject.examples.inputs)
    with pytest.raises(InputError, match="was not uploaded"):
        subject.with_inputs([str(tmp_path / "secret.png")])


DOCS = Path(__file__).parents[2] / "docs" / "how-to"


def blocks(page: str) -> list[str]:
    found = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(found) >= 2
    return found


def test_documented_calls_next_to_other_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks("from-other-tools.md"):
        exec(block, names)
    assert {"page.html", "two-heads.pdf", "pair.html", "pattern.png", "cross.png"} <= {
        path.name for path in tmp_path.iterdir()
    }
    assert names["maps"].words().layers["layer.0"].key_labels == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    np.testing.assert_array_equal(names["maps"].layers["layer.1"].weights, names["layers"][1][0].numpy())
    assert names["pair"].layers["cross.0"].kind == "cross"
    assert (names["without"] - names["plain"]).abs().max() > 1e-4


@pytest.mark.filterwarnings("ignore")
def test_documented_calls_for_external_models(
    folders: Callable[[str], Path], tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    monkeypatch.chdir(tmp_path)
    (tmp_path / "FOLDER").symlink_to(folders("llama"))
    first, labeled, own, predicting, patching = blocks("external-models.md")
    external: dict[str, Any] = {"regard": regard}
    exec(first.replace("The cat sat on the mat.", "the cat sat on the mat"), external)
    exec(predicting.replace('" mat"', "9"), external)
    exec(patching, external)
    assert (tmp_path / "parts.svg").exists()
    assert (tmp_path / "cat.html").exists() and (tmp_path / "smaller" / "model.safetensors").exists()
    sizes: Any = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    classifier = transformers.BertForSequenceClassification(transformers.BertConfig(**sizes))
    exec(labeled, {"regard": regard, "torch": torch, "tokenizer": tokenizer, "model": classifier})
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(30, 8), layer)
    names = {
        "regard": regard,
        "model": model,
        "read": lambda text: torch.tensor([[ord(each) % 30 for each in text]]),
        "loss": lambda model, text: model(torch.tensor([[ord(each) % 30 for each in text]])).square().mean(),
    }
    exec(own, names)


@pytest.mark.parametrize(
    "given",
    [
        torch.full((3, 4, 4), 0.25),
        np.full((1, 3, 4, 4), 0.25),
        [torch.full((1, 3, 4, 4), 0.25)],
        torch.full((1, 1, 3, 4, 4), 0.25, dtype=torch.bfloat16, requires_grad=True),
        [torch.full((4, 4), 0.25)] * 3,
    ],
    ids=["heads", "numpy", "list", "stack", "matrices"],
)
def test_weights_from_tensors_are_unchanged(given: Any) -> None:
    [layer] = regard.view_weights(given, list("abcd")).layers.values()
    assert layer.weights.shape == (3, 4, 4) and (layer.weights == 0.25).all()
    assert layer.key_labels == list("abcd") and layer.kind == "encoder"


def test_causal_weights_have_kind_decoder() -> None:
    weights = torch.eye(3).expand(2, 3, 3)
    [layer] = regard.view_weights(weights).layers.values()
    assert layer.kind == "decoder" and layer.query_labels == ["0", "1", "2"]
    labels = regard.view_weights(weights, ["The", "Ġcat", "s"]).layers["layer.0"].key_labels
    assert labels == ["The", "▁cat", "s"]


def test_weights_of_wrong_shape_are_refused() -> None:
    with pytest.raises(InputError, match="has 4 queries but 3 tokens are given"):
        regard.view_weights(torch.zeros(2, 4, 4), list("abc"))
    with pytest.raises(InputError, match="no weights are given"):
        regard.view_weights()
    with pytest.raises(InputError, match="weights have 2 dimensions"):
        regard.view_weights(torch.zeros(4, 4))
    with pytest.raises(InputError, match="input 2 is out of range"):
        regard.view_weights(torch.zeros(2, 1, 4, 4), input=2)


def test_values_that_are_no_weights_are_refused() -> None:
    def even() -> torch.Tensor:
        return torch.full((2, 3, 4, 4), 0.25)

    with pytest.raises(InputError, match="weights have a batch of 2 inputs: give input=0 to 1"):
        regard.view_weights([even()])
    assert regard.view_weights([even()], input=1).layers
    for value, said in (
        (float("nan"), "layer.0 has nan in head 2, row 1, column 3: give finite weights"),
        (0.5, "row 1 of layer.0, head 2, sums to 1.25: give weights after the softmax"),
        (-0.25, "row 1 of layer.0, head 2, has weights below 0"),
    ):
        weights = even()[0]
        weights[2, 1, 3] = value
        with pytest.raises(InputError, match=said):
            regard.view_weights(weights)
    weights = torch.randn(2, 9, 700).softmax(-1).bfloat16()
    weights[0, 4] = 0  # a query that attends to nothing
    assert len(regard.view_weights(cross=weights).layers) == 1
