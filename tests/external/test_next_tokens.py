"""Next tokens have the model's own probabilities, and the tokenizer splits the new text into the same tokens."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import regard
from regard.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore")
TEXT, MASKED = "the cat sat on the", "the cat <mask> on the <mask>"


@pytest.fixture(scope="module")
def causal(model_of: Callable[[str], Any], tokenizer: Any) -> Any:
    return regard.look(model_of("gpt2"), tokenizer)


@pytest.fixture(scope="module")
def masked(model_of: Callable[[str], Any], tokenizer: Any) -> Any:
    return regard.look(model_of("bert-mlm"), tokenizer)


@torch.no_grad()
def logits_of(subject: Any, text: str) -> torch.Tensor:
    return subject.model(**subject.adapter.texts.tensors(subject.model, text)).logits[0]


def test_probabilities_are_those_of_the_model(causal: Any) -> None:
    result, logits = regard.next_tokens(causal, TEXT), logits_of(causal, TEXT)[-1]
    assert len(result.tokens) == 10 and result.kept == len(logits) and result.kept_share == pytest.approx(1)
    for item, place in zip(result.tokens, logits.argsort(descending=True).tolist(), strict=False):
        assert item.id == place and item.logit == pytest.approx(float(logits[place]))
        assert item.probability == pytest.approx(float(logits.softmax(-1)[place]), abs=1e-6)
        assert item.original is None
    earlier = regard.next_tokens(causal, TEXT, position=1).tokens[0]
    assert earlier.id == int(logits_of(causal, TEXT)[1].argmax())


def test_temperature_and_limits_are_renormalised(causal: Any) -> None:
    plain = logits_of(causal, TEXT)[-1]
    shares = (plain / 0.5).softmax(-1).sort(descending=True).values
    result = regard.next_tokens(causal, TEXT, temperature=0.5, top_k=3)
    assert [item.probability for item in result.tokens] == pytest.approx((shares[:3] / shares[:3].sum()).tolist())
    assert result.kept == 3 and result.kept_share == pytest.approx(float(shares[:3].sum()))
    result = regard.next_tokens(causal, TEXT, temperature=0.5, top_p=0.5)
    assert result.kept == int((shares.cumsum(0) < 0.5).sum()) + 1
    assert sum(item.probability for item in regard.next_tokens(causal, TEXT, count=60).tokens) == pytest.approx(1)


def test_a_drawn_token_repeats_with_its_seed_and_follows_the_probabilities(causal: Any) -> None:
    drawn: list[Any] = [regard.next_tokens(causal, TEXT, top_k=2, seed=seed).drawn for seed in range(200)]
    likeliest = regard.next_tokens(causal, TEXT, top_k=2).tokens
    share = sum(item.id == likeliest[0].id for item in drawn) / 200
    assert {item.id for item in drawn} == {item.id for item in likeliest}
    assert share == pytest.approx(likeliest[0].probability, abs=0.12)
    assert regard.next_tokens(causal, TEXT, seed=3).drawn == regard.next_tokens(causal, TEXT, seed=3).drawn


def test_an_intervention_shows_both_probabilities(causal: Any) -> None:
    plain = regard.next_tokens(causal, TEXT, count=60)
    with regard.intervene(causal, causal.layers[0].name, heads=[1]):
        changed = regard.next_tokens(causal, TEXT)
    before = {item.id: item.probability for item in plain.tokens}
    assert changed.interventions
    for item in changed.tokens:
        assert item.original == pytest.approx(before[item.id], abs=1e-6) and item.original != item.probability


def test_a_written_token_is_read_again(causal: Any, masked: Any) -> None:
    item = regard.next_tokens(causal, TEXT).tokens[0]
    assert item.text == f"{TEXT} {item.token}" and item.same_tokens
    first = regard.next_tokens(masked, MASKED)
    assert first.position == 2 and first.at == "<mask>"
    word = next(item for item in regard.next_tokens(masked, MASKED, count=60).tokens if item.id > 4 and item.text)
    text = MASKED.replace("<mask>", word.token, 1)
    assert word.text == text and word.same_tokens
    assert first.tokens[0].id == 59 and first.tokens[0].text is None  # the tokenizer has no such word
    assert regard.next_tokens(masked, text).position == 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"count": 0}, "count 0"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"top_k": 0}, "top_k 0"),
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"position": 9}, "position 9"),
    ],
)
def test_options_out_of_range_are_refused(causal: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        regard.next_tokens(causal, TEXT, **options)


def test_other_models_and_texts_without_a_mask_are_refused(
    model_of: Callable[[str], Any], tokenizer: Any, masked: Any
) -> None:
    with pytest.raises(InputError, match="not a causal or masked language model"):
        regard.next_tokens(regard.look(model_of("t5"), tokenizer), TEXT)
    with pytest.raises(InputError, match="has no <mask>: write one"):
        regard.next_tokens(masked, TEXT)
    assert regard.next_tokens(masked, TEXT, position=1).at == "cat"
