"""The parts of a score of transformers models sum to the score, and equal parts computed with hooks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import regard
from regard.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore")
TEXT = "the cat sat on a mat"
PAIR = f"{TEXT} ||| a big dog ran"
MODELS = ["bert", "roberta", "distilbert", "electra", "albert", "llama", "qwen2", "qwen3"]
MODELS += ["gemma", "gemma2", "mistral", "granite", "gpt2", "opt", "phi", "starcoder2"]
PAIRS = ["bart", "marian", "t5"]


@pytest.mark.parametrize("name", [*MODELS, *PAIRS])
def test_parts_sum_to_the_score(model_of: Callable[[str], Any], tokenizer: Any, name: str) -> None:
    subject = regard.look(model_of(name), tokenizer)
    text = PAIR if name in PAIRS else TEXT
    shown = subject.attend(text)
    for layer in subject.layers[-2:]:
        result = regard.why(subject, text, layer=layer.name, head=1, output=3)
        weights = shown.layers[layer.name].weights[1, 3]
        largest = max(np.abs(result.pairs).max(), *map(abs, result.additions.values()), 1e-3)
        assert result.key == int(weights.argmax())
        assert result.weight == pytest.approx(float(weights[result.key]), abs=1e-5)
        assert abs(result.remainder) <= 1e-5 * largest
        kinds = {part.kind for part in result.query_parts}
        assert {"token", "head"} <= kinds or layer is not subject.layers[-1] or name == "albert"
        scores = [regard.why(subject, text, layer=layer.name, head=1, output=3, key=key).score for key in (0, 1)]
        assert np.exp(scores[0] - scores[1]) == pytest.approx(weights[0] / weights[1], rel=1e-3)
        nodes = [result.trace(depth=3, top=2).root]
        while nodes:
            node = nodes.pop()
            assert node.note == ""
            total = sum(child.value for child in node.children)
            assert not node.children or total == pytest.approx(node.value, abs=1e-4 * largest)
            nodes += node.children


def test_capped_scores_are_named(model_of: Callable[[str], Any], tokenizer: Any) -> None:
    result = regard.why(regard.look(model_of("gemma2"), tokenizer), TEXT)
    assert "capped score" in result.fixed


def test_position_biases_are_additions(model_of: Callable[[str], Any], tokenizer: Any) -> None:
    subject: Any = regard.look(model_of("t5"), tokenizer)
    layer = subject.layers[0]
    result = regard.why(subject, PAIR, layer=layer.name, head=2, output=4, key=4)
    bias = subject.model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    assert result.additions["position bias"] == pytest.approx(float(bias[0, 2]), abs=1e-6)


def test_attention_in_code_of_its_own_is_refused(model_of: Callable[[str], Any], tokenizer: Any) -> None:
    subject = regard.look(model_of("gptj"), tokenizer)
    with pytest.raises(InputError, match=r"queries and keys are arguments neither|after its heads is not known"):
        regard.why(subject, TEXT)
