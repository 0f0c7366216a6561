"""Explanation methods on transformers models equal computations by plain hooks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from regard.interpret.attribution.methods import METHODS, run_method
from regard.interpret.attribution.trial import LEVELS, Background, Trial
from tests.external.conftest import TEXTS
from tests.external.test_intervention import without_head

pytestmark = pytest.mark.filterwarnings("ignore")
PROJECTIONS = {"gpt2": "transformer.h.1.attn.c_proj", "llama": "model.layers.1.self_attn.o_proj"}


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert-mlm", "bart", "t5"])
def test_every_method_gives_finite_scores(model_of: Callable[[str], Any], tokenizer: Any, name: str) -> None:
    subject = regard.look(model_of(name), tokenizer, inputs=TEXTS)
    background, prepared = Background(subject), subject.prepare(TEXTS[0])
    inputs, heads = (Trial(subject, prepared, level, background=background) for level in LEVELS[:2])
    skipped = {"oracle", "eap", "eap_ig", "edge_patching", "attribution_patching"}  # edges have other tests
    for method in (method for key, method in METHODS.items() if key not in skipped):
        if "inputs" in method.levels:
            scores = run_method(method.functions["inputs"], inputs)
            assert np.isfinite(scores).all() and scores.min() >= 0
        if "heads" in method.levels:
            by_layer = run_method(method.functions["heads"], heads)
            assert set(by_layer) == {layer.name for layer in subject.layers}
            assert all(np.isfinite(values).all() for values in by_layer.values())
    result = regard.attribute(subject, TEXTS[:2], method="gate", level="heads")
    assert result.heads is not None and result.input == "mean over 2 inputs"


@pytest.mark.parametrize("name", PROJECTIONS)
@torch.no_grad()
def test_ablation_equals_plain_hooks(model_of: Callable[[str], Any], tokenizer: Any, name: str) -> None:
    model = model_of(name)
    subject = regard.look(model, tokenizer, inputs=TEXTS)
    ids = tokenizer(TEXTS[0], return_tensors="pt")["input_ids"]
    embedded, before = model.get_input_embeddings()(ids), model(ids).logits[0]
    predicted, steps = before.argmax(-1), range(ids.shape[1])

    def changes(logits: Tensor) -> Tensor:
        return (logits.log_softmax(-1) - before.log_softmax(-1))[steps, predicted].abs()

    zero = regard.attribute(subject, TEXTS[0], method="ablation_zero").inputs
    assert zero is not None
    for key in steps:
        without = embedded.clone()
        without[:, key] = 0
        assert np.allclose(zero[:, key], changes(model(inputs_embeds=without).logits[0]), atol=1e-4)
    layer = subject.layers[1]
    for head in range(layer.heads):
        with without_head(model, PROJECTIONS[name], head, layer.heads):
            after = model(ids).logits[0]
        effect = regard.head_effect(subject, TEXTS[0], layer.name, head)
        assert effect.outputs[-1].logit_without == pytest.approx(float(after[-1, predicted[-1]]), abs=1e-4)


@torch.no_grad()
def test_what_a_head_writes_and_heads_between(model_of: Callable[[str], Any], tokenizer: Any) -> None:
    subject = regard.look(model_of("gpt2"), tokenizer, inputs=TEXTS)
    writes = regard.head_writes(subject, TEXTS[0], subject.layers[1].name, 2, count=2)
    name = subject.layers[1].name
    parts = [regard.logit_attribution(subject, TEXTS[0], token=number).heads[name][2] for number in range(60)]
    centred = np.sort(parts) - np.mean(parts)
    assert [value for _, value in writes.raised] == pytest.approx(centred[:-3:-1].tolist(), abs=1e-4)
    assert [value for _, value in writes.lowered] == pytest.approx(centred[:2].tolist(), abs=1e-4)
    heads = regard.heads_between(subject, TEXTS[0], query=-1, key=0)
    assert heads.heads[0].weight == max(head.weight for head in heads.heads) and len(heads.heads) == 8
