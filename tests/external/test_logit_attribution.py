"""The parts of a logit equal the parts from independent hooks, and sum to the logit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import regard
from regard.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore")
TEXT = "the cat sat on <mask> mat"
MODELS = ["gpt2", "llama", "bert-mlm", "gpt_neox", "opt", "falcon", "phi3", "gemma2", "mixtral", "xglm"]
PROJECTIONS = {
    "gpt2": "transformer.h.{}.attn.c_proj",
    "llama": "model.layers.{}.self_attn.o_proj",
    "gpt_neox": "gpt_neox.layers.{}.attention.dense",
    "bert-mlm": "bert.encoder.layer.{}.attention.output.dense",
}


def run(subject: Any, names: list[str]) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
    """Return the inputs and outputs of some modules, and the logits."""
    inputs, outputs, hooks = dict[str, Tensor](), dict[str, Tensor](), []
    for name in names:

        def keep(module: Any, args: Any, output: Any, name: str = name) -> None:
            inputs[name], outputs[name] = args[0][0], output[0]

        hooks.append(subject.model.get_submodule(name).register_forward_hook(keep))
    with torch.no_grad():
        logits = subject.model(**subject.adapter.texts.tensors(subject.model, TEXT)).logits[0]
    for hook in hooks:
        hook.remove()
    return inputs, outputs, logits


def through_norm(norm: Any, states: Tensor, change: Tensor) -> Tensor:
    """Return the change of a norm's output for a change of its states, with a frozen scale."""
    if isinstance(norm, torch.nn.LayerNorm):
        return (change - change.mean(-1, keepdim=True)) * norm.weight / (states.var(unbiased=False) + norm.eps).sqrt()
    return change * norm.weight / (states.square().mean() + norm.variance_epsilon).sqrt()


@pytest.mark.parametrize("name", MODELS)
def test_parts_sum_to_the_logit(model_of: Callable[[str], Any], tokenizer: Any, name: str) -> None:
    subject = regard.look(model_of(name), tokenizer)
    _, _, logits = run(subject, [])
    for position, token in ((3, None), (4, 7), (-1, "cat")):
        result = regard.logit_attribution(subject, TEXT, position=position, token=token)
        assert result.logit == pytest.approx(float(logits[position, result.token_id]), abs=1e-5)
        assert result.total == pytest.approx(result.logit, abs=1e-4)
        assert [len(values) for values in result.heads.values()] == [layer.heads for layer in subject.layers]
        assert result.feed_forward and result.embeddings


@pytest.mark.parametrize("name", ["gpt2", "llama", "gpt_neox"])
@torch.no_grad()
def test_heads_equal_their_output_through_the_final_norm(
    model_of: Callable[[str], Any], tokenizer: Any, name: str
) -> None:
    subject = regard.look(model_of(name), tokenizer)
    final = {"gpt2": "transformer.ln_f", "llama": "model.norm", "gpt_neox": "gpt_neox.final_layer_norm"}[name]
    projections = [PROJECTIONS[name].format(number) for number in (0, 1)]
    inputs, _, _ = run(subject, [final, *projections])
    result = regard.logit_attribution(subject, TEXT, position=3, token=9)
    model: Any = subject.model
    unembedding = model.get_output_embeddings().weight[9]
    for layer, projection in zip(subject.layers, projections, strict=True):
        module = subject.model.get_submodule(projection)
        for head in range(layer.heads):
            alone = torch.zeros_like(inputs[projection][3]).unflatten(-1, (layer.heads, -1))
            alone[head] = inputs[projection][3].unflatten(-1, (layer.heads, -1))[head]
            change = module(alone.flatten()[None])[0] - module(torch.zeros_like(alone.flatten())[None])[0]
            expected = through_norm(subject.model.get_submodule(final), inputs[final][3], change) @ unembedding
            assert result.heads[layer.name][head] == pytest.approx(float(expected), abs=1e-4)


@torch.no_grad()
def test_heads_of_bert_pass_every_norm_behind_them(model_of: Callable[[str], Any], tokenizer: Any) -> None:
    subject = regard.look(model_of("bert-mlm"), tokenizer)
    model: Any = subject.model
    projection, transform = PROJECTIONS["bert-mlm"].format(1), "cls.predictions.transform"
    norms = ["bert.encoder.layer.1.attention.output.LayerNorm", "bert.encoder.layer.1.output.LayerNorm"]
    inputs, outputs, _ = run(subject, [projection, *norms, f"{transform}.dense", f"{transform}.LayerNorm"])
    result = regard.logit_attribution(subject, TEXT, token=9)
    assert result.position == 4
    heads = subject.layers[1].heads
    context = inputs[projection][4].unflatten(-1, (heads, -1))
    weight = model.get_submodule(projection).weight.unflatten(1, (heads, -1))
    for head in range(heads):
        change = weight[:, head] @ context[head]
        for norm in norms:
            change = through_norm(model.get_submodule(norm), inputs[norm][4], change)
        dense = outputs[f"{transform}.dense"][4]
        change = F.gelu(dense) / dense * (model.get_submodule(f"{transform}.dense").weight @ change)
        norm = f"{transform}.LayerNorm"
        change = through_norm(model.get_submodule(norm), inputs[norm][4], change)
        expected = float(change @ model.get_output_embeddings().weight[9])
        assert result.heads[subject.layers[1].name][head] == pytest.approx(expected, abs=1e-4)


def test_a_head_that_is_off_adds_nothing(model_of: Callable[[str], Any], tokenizer: Any, tmp_path: Path) -> None:
    subject = regard.look(model_of("gpt2"), tokenizer)
    name = subject.layers[1].name
    with regard.intervene(subject, name, heads=[2]):
        result = regard.logit_attribution(subject, TEXT)
    assert result.heads[name][2] == 0 and result.heads[name][1] != 0
    assert result.interventions and result.total == pytest.approx(result.logit, abs=1e-4)
    assert result.plot(tmp_path / "parts.svg").read_bytes().startswith(b"<?xml")
    assert "norms frozen" in str(result)


def test_unknown_structures_are_refused(model_of: Callable[[str], Any], tokenizer: Any) -> None:
    subject = regard.look(model_of("gpt2"), tokenizer)
    with pytest.raises(InputError, match="is not in the vocabulary: choose 0 to"):
        regard.logit_attribution(subject, TEXT, token=100)
    with subject.model.get_submodule("lm_head").register_forward_hook(lambda module, args, output: output + 1):
        with pytest.raises(InputError, match="has parts other than heads"):
            regard.logit_attribution(subject, TEXT)
