"""Example inputs come from the model card, or match the kind and language of the model."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.parametrize(
    "card", ["", "---\nwidget: [\n---\n", "---\n- 1\n---\n", "---\nwidget: 3\n", "no header"]
)
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
