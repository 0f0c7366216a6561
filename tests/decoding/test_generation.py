"""Continuation of prompts, and truncated sampling."""

from itertools import product

import pytest
import torch

from regard.decoding.generation import generate
from regard.decoding.search import truncate
from regard.decoding.translation import Search
from regard.errors import InputError
from regard.models.decoder_only import DecoderOnly, DecoderOnlyConfig

SYMBOLS = 4


@pytest.fixture
def model() -> DecoderOnly:
    torch.manual_seed(2)
    return DecoderOnly(DecoderOnlyConfig(hidden=8, heads=2, init_std=0.8), symbols=SYMBOLS, longest=12).eval()


def log_probability(model: DecoderOnly, prompt: list[int], tokens: tuple[int, ...]) -> float:
    log_probs = model(torch.tensor([[*prompt, *tokens]])).log_softmax(-1)[0]
    return sum(log_probs[len(prompt) - 1 + step, token].item() for step, token in enumerate(tokens))


def test_a_wide_beam_finds_the_likeliest_continuations(model: DecoderOnly) -> None:
    prompt = [1, 3, 0]
    every = {tokens: log_probability(model, prompt, tokens) for tokens in product(range(SYMBOLS), repeat=3)}
    best = sorted(every, key=lambda tokens: -every[tokens])[:5]
    [found] = generate(model, [prompt], Search(beam=64, n_best=5), most=3)
    assert [tuple(hypothesis.tokens) for hypothesis in found] == best
    for hypothesis in found:
        assert hypothesis.log_probability == pytest.approx(every[tuple(hypothesis.tokens)], abs=1e-4)


def test_greedy_search_equals_repeated_passes_for_prompts_of_any_length(model: DecoderOnly) -> None:
    prompts = [[1], [2, 3], [0], [3, 2, 1]]
    for prompt, [found] in zip(prompts, generate(model, prompts, Search(), most=5), strict=True):
        tokens = list(prompt)
        for _ in range(5):
            tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
        assert found.tokens == tokens[len(prompt) :]


def test_samples_follow_the_distribution_and_its_truncation(model: DecoderOnly) -> None:
    [[expected]] = model(torch.tensor([[1]])).softmax(-1).tolist()
    drawn = [generate(model, [[1]], Search(temperature=1.0, seed=seed), most=1)[0][0] for seed in range(400)]
    shares = [sum(sample.tokens == [token] for sample in drawn) / 400 for token in range(SYMBOLS)]
    assert shares == pytest.approx(expected, abs=0.08)
    likely = sorted(range(SYMBOLS), key=lambda token: -expected[token])[:2]
    kept = [generate(model, [[1]], Search(temperature=1.0, seed=seed, top_k=2), most=1)[0][0] for seed in range(60)]
    assert {sample.tokens[0] for sample in kept} == set(likely)


def test_truncation() -> None:
    probabilities = torch.tensor([[0.1, 0.4, 0.3, 0.2]])
    assert truncate(probabilities, top_k=2).tolist() == [pytest.approx([0, 0.4, 0.3, 0])]
    assert truncate(probabilities, top_p=0.75).tolist() == [pytest.approx([0, 0.4, 0.3, 0.2])]
    assert truncate(probabilities, top_p=0.69).tolist() == [pytest.approx([0, 0.4, 0.3, 0])]
    assert truncate(probabilities, top_p=0.01).tolist() == [pytest.approx([0, 0.4, 0, 0])]
    # First the likeliest k, then the share of their probability, as in transformers.
    assert truncate(probabilities, top_k=2, top_p=0.5).tolist() == [pytest.approx([0, 0.4, 0, 0])]
    assert torch.equal(truncate(probabilities), probabilities)


def test_bad_options_are_refused(model: DecoderOnly) -> None:
    with pytest.raises(InputError, match="a prompt is empty"):
        generate(model, [[]], Search(), most=2)


def test_a_text_goes_on_beyond_the_positions(model: DecoderOnly) -> None:
    """The model then reads the last half of its positions."""
    [[short]] = generate(model, [[1, 2]], Search(), most=10, longest=12)
    [[long]] = generate(model, [[1, 2]], Search(), most=40, longest=12, slide=True)
    assert len(long.tokens) == 40 and long.tokens[:10] == short.tokens
    window = [1, 2, *short.tokens][-6:]
    [[more]] = generate(model, [window], Search(), most=1)
    assert long.tokens[10] == more.tokens[0]
    for search in (Search(), Search(beam=2)):
        with pytest.raises(InputError, match="exceed the model's"):
            generate(model, [[1, 2]], search, most=40, longest=12, slide=search.beam > 1)
    [[after_long]] = generate(model, [[3] * 20 + window], Search(), most=1, longest=12, slide=True)
    assert after_long.tokens == more.tokens
    together = generate(model, [[1, 2], [0, 3, 1, 2, 0]], Search(temperature=1.0), most=40, longest=12, slide=True)
    for prompt, answer in zip([[1, 2], [0, 3, 1, 2, 0]], together, strict=True):
        assert [answer] == generate(model, [prompt], Search(temperature=1.0), most=40, longest=12, slide=True)
