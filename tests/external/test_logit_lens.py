"""Each row of the logit lens is the state of a block after the model's final norm and unembedding."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.errors import InputError
from regard.external.logit_lens import read_states
from tests.interpret.subjects import TINY, language_run

pytestmark = pytest.mark.filterwarnings("ignore")
TEXT = "the cat sat on <mask> mat"
HEADS: dict[str, tuple[Callable[[Any, Any], Any], list[str]]] = {
    "gpt2": (lambda model, states: model.lm_head(model.transformer.ln_f(states)), ["transformer.ln_f", "lm_head"]),
    "llama": (lambda model, states: model.lm_head(model.model.norm(states)), ["model.norm", "lm_head"]),
    "bert-mlm": (lambda model, states: model.cls(states), ["cls"]),
    "gpt_neox": (
        lambda model, states: model.get_output_embeddings()(model.gpt_neox.final_layer_norm(states)),
        ["gpt_neox.final_layer_norm", "lm_head"],
    ),
}


@pytest.mark.parametrize("name", HEADS)
@torch.no_grad()
def test_rows_are_states_through_the_output_head(model_of: Callable[[str], Any], tokenizer: Any, name: str) -> None:
    subject: Any = regard.look(model_of(name), tokenizer)
    result = regard.logit_lens(subject, TEXT, count=3)
    apply, names = HEADS[name]
    arguments = subject.adapter.texts.tensors(subject.model, TEXT)
    output = subject.model(**arguments, output_hidden_states=True)
    assert result.head == names and len(result.layers) == 3 and result.layers[0] == "embeddings"
    assert result.positions == subject.called(arguments["input_ids"][0].tolist())
    for row, states in enumerate(output.hidden_states[:2]):  # the last one is normalized already in most models
        best = apply(subject.model, states)[0].softmax(-1).topk(3)
        assert torch.allclose(torch.tensor(result.probabilities[row]), best.values, atol=1e-5)
        assert result.tokens[row] == [subject.called(ids) for ids in best.indices.tolist()]
    last = output.logits[0].softmax(-1).topk(3)
    assert torch.allclose(torch.tensor(result.probabilities[-1]), last.values, atol=1e-5)
    assert "Logit lens through" in str(result)


def test_changed_logits_and_other_models_are_refused(model_of: Callable[[str], Any], tokenizer: Any) -> None:
    with pytest.raises(InputError, match="changes its logits after final norm"):
        regard.logit_lens(regard.look(model_of("cohere"), tokenizer), TEXT)
    with pytest.raises(InputError, match="no list of blocks"):
        regard.logit_lens(regard.look(model_of("mamba"), tokenizer), TEXT)


@torch.no_grad()
def test_rows_of_a_run_are_states_through_its_output_head(tmp_path: Path) -> None:
    run = language_run(tmp_path)
    result = regard.logit_lens(run, "ABCDAB", count=2)
    tokens, states = run.task.parse("ABCDAB"), list[torch.Tensor]()
    states.append(run.model.embed(tokens))
    for block in run.model.decoder.layers:
        states.append(block(states[-1]).states)
    assert result.layers == ["embeddings", "decoder.0", "decoder.1"] and result.positions == list("ABCDAB")
    assert result.head == ["decoder.norm", "embedding"]
    for row, state in enumerate(states):
        best = run.model.logits(run.model.decoder.norm(state))[0].softmax(-1).topk(2)
        assert torch.allclose(torch.tensor(result.probabilities[row]), best.values, atol=1e-5)
        assert result.tokens[row] == [run.called(classes) for classes in best.indices.tolist()]
    best = run.model(tokens)[0].softmax(-1).topk(2)
    assert torch.allclose(torch.tensor(result.probabilities[-1]), best.values, atol=1e-5)
    with pytest.raises(InputError, match="has real-valued inputs and outputs"):
        regard.logit_lens(regard.train("regression", savepath=tmp_path, **TINY), "0")


@torch.no_grad()
def test_blocks_without_attention_and_shared_blocks_have_rows() -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra peers")

    sizes: dict[str, Any] = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
    layers = ["conv", "full_attention", "conv"]
    hybrid = transformers.Lfm2Config(**sizes, num_hidden_layers=3, num_key_value_heads=2, layer_types=layers)
    shared = transformers.AlbertConfig(**sizes, num_hidden_layers=2, embedding_size=16)
    ids = torch.tensor([[5, 6, 7, 8]])
    cases: tuple[tuple[Any, Any, list[str]], ...] = (
        (transformers.Lfm2ForCausalLM, hybrid, [f"model.layers.{number}" for number in range(3)]),
        (
            transformers.AlbertForMaskedLM,
            shared,
            [f"albert.encoder.albert_layer_groups.0{call}" for call in ("", "#1")],
        ),
    )
    for make, config, names in cases:
        model: Any = make(config).eval()
        states = read_states(model, lambda model=model: model(input_ids=ids).logits)  # type: ignore[misc]
        assert states.names == ["embeddings", *names]
