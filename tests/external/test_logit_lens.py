"""Each row of the logit lens is the state of a block after the model's final norm and unembedding."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import regard
from regard.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore")
TEXT = "the cat sat on <mask> mat"
HEADS: dict[str, tuple[Callable[[Any, Any], Any], list[str]]] = {
    "gpt2": (
        lambda model, states: model.lm_head(model.transformer.ln_f(states)),
        ["transformer.ln_f", "lm_head"],
    ),
    "llama": (lambda model, states: model.lm_head(model.model.norm(states)), ["model.norm", "lm_head"]),
    "bert-mlm": (lambda model, states: model.cls(states), ["cls"]),
    "gpt_neox": (
        lambda model, states: model.get_output_embeddings()(model.gpt_neox.final_layer_norm(states)),
        ["gpt_neox.final_layer_norm", "lm_head"],
    ),
}


@pytest.mark.parametrize("name", HEADS)
@torch.no_grad()
def test_rows_are_states_through_the_output_head(
    model_of: Callable[[str], Any], tokenizer: Any, name: str
) -> None:
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
