"""Models with adapters, offloaded weights or wrappers are supported, or refused with a one-line error."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.errors import InputError

peft = pytest.importorskip("peft", reason="needs the extra peers")
accelerate = pytest.importorskip("accelerate", reason="needs the extra peers")
pytestmark = pytest.mark.filterwarnings("ignore")

TEXT = "the cat sat on the mat"
WORDS = ["▁the", "▁cat", "▁sat", "▁on", "▁the", "▁mat"]
PROMPT = ["<prompt 0>", "<prompt 1>", "<prompt 2>"]


def plain(labels: Any) -> list[str]:
    """Return labels without the mark at the start of a word."""
    return [label.removeprefix("▁") for label in labels]


def test_lora_weights_are_included(model_of: Callable[[str], Any], tokenizer: Any) -> None:
    adapted = peft.get_peft_model(
        model_of("llama"), peft.LoraConfig(task_type="CAUSAL_LM", r=2, init_lora_weights=False)
    ).eval()
    subject = regard.look(adapted, tokenizer)
    ids = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    with torch.no_grad(), regard.record(adapted) as records:
        adapted(input_ids=ids)
    found = subject.attend(TEXT, generate=1).layers["model.layers.0.self_attn"]
    expected = records["base_model.model.model.layers.0.self_attn"].weights[0]
    torch.testing.assert_close(torch.as_tensor(found.weights), expected, atol=1e-6, rtol=0)
    assert plain(found.key_labels) == plain(WORDS)


@pytest.mark.parametrize("kind", ["PrefixTuningConfig", "PromptTuningConfig"])
def test_learned_prompt_has_labelled_keys(model_of: Callable[[str], Any], tokenizer: Any, kind: str) -> None:
    config = getattr(peft, kind)(task_type="CAUSAL_LM", num_virtual_tokens=3)
    adapted = peft.get_peft_model(model_of("llama"), config)
    subject = regard.look(adapted, tokenizer)
    layer = next(iter(subject.attend(TEXT).layers.values()))
    assert plain(layer.key_labels) == PROMPT + plain(WORDS)
    rows = 6 if kind == "PrefixTuningConfig" else 9
    assert torch.as_tensor(layer.weights).shape == (4, rows, 9)
    assert plain(layer.query_labels)[-6:] == plain(WORDS)
    ids = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = adapted(input_ids=ids).logits[0, -6:-1].log_softmax(-1)
    expected = -logits[range(5), ids[0, 1:]].mean()
    assert subject.loss(subject.over([TEXT]).unseen(1, 0)) == pytest.approx(float(expected), abs=1e-5)


def test_models_with_adapters_are_not_pruned(model_of: Callable[[str], Any], tokenizer: Any, tmp_path: Path) -> None:
    adapted = peft.get_peft_model(model_of("llama"), peft.LoraConfig(task_type="CAUSAL_LM", r=2))
    with pytest.raises(InputError, match="merge the adapters first"):
        regard.look(adapted, tokenizer).prune(1, tmp_path / "pruned", texts=[TEXT])
    assert not (tmp_path / "pruned").exists()


@pytest.mark.parametrize("way", ["cpu", "disk"])
def test_offloaded_weights_give_the_same_map(
    model_of: Callable[[str], Any], tokenizer: Any, tmp_path: Path, way: str
) -> None:
    expected = regard.look(model_of("llama"), tokenizer).attend(TEXT, generate=3)
    model = model_of("llama")
    if way == "cpu":
        accelerate.cpu_offload(model, execution_device="cpu")
    else:
        accelerate.disk_offload(model, str(tmp_path), execution_device="cpu")
    found = regard.look(model, tokenizer).attend(TEXT, generate=3)
    assert found.prediction == expected.prediction
    for name, layer in expected.layers.items():
        torch.testing.assert_close(
            torch.as_tensor(found.layers[name].weights), torch.as_tensor(layer.weights), atol=1e-6, rtol=0
        )


@pytest.mark.parametrize("wrap", [torch.nn.DataParallel, pytest.param(torch.compile, marks=pytest.mark.slow)])
def test_wrappers_are_removed(model_of: Callable[[str], Any], tokenizer: Any, wrap: Callable[[Any], Any]) -> None:
    model = model_of("llama")
    assert regard.look(wrap(model), tokenizer).model is model


def test_unsupported_models_are_refused_in_one_line(model_of: Callable[[str], Any], tokenizer: Any) -> None:
    import transformers

    model = model_of("llama")
    pipeline: Any = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer)
    with pytest.raises(InputError, match=r"is a pipeline: pass its parts, look\(pipe.model, pipe.tokenizer\)"):
        regard.look(pipeline)
    with pytest.raises(InputError, match="has no weights: model.embed_tokens is on the meta device"):
        regard.look(model_of("llama").to("meta"), tokenizer)
    small = model_of("llama")
    small.resize_token_embeddings(8)
    with pytest.raises(InputError, match="beyond the model's vocabulary of 8"):
        regard.look(small, tokenizer).attend(TEXT)
