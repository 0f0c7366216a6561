"""Decoder-only language models equal a loop in NumPy, also step by step (tests/convert compares transformers)."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard import record
from regard.attention.interventions import intervene
from regard.errors import InputError
from regard.models.decoder_only import DecoderOnly, DecoderOnlyConfig

SYMBOLS, LONGEST = 11, 13
VARIANTS: list[dict[str, Any]] = [
    {},
    {"pre_norm": False, "positions": "sinusoidal", "activation": "relu"},
    {"bias": True, "activation": "gelu_tanh"},
    {"norm": "rms", "activation": "swiglu", "positions": "rotary", "key_value_heads": 1, "tied": False},
    {"feed_forward": False, "heads": 3, "head_size": 4, "positions": "none"},
    {"heads": 6, "head_size": 2, "key_value_heads": 3, "positions": "rotary"},
    {"positions": "concatenated"},
]


def make(**options: Any) -> DecoderOnly:
    torch.manual_seed(0)
    config = DecoderOnlyConfig(**{"hidden": 12, "heads": 2, "inner": 14, "layers": 2, **options})
    model = DecoderOnly(config, symbols=SYMBOLS, longest=LONGEST).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # large values, also for biases and norms, so that all parts count
            parameter.copy_(torch.randn(parameter.shape) * 0.5 + (parameter.dim() == 1))
    return model


def tokens(batch: int = 3, time: int = 7) -> Tensor:
    return torch.randint(SYMBOLS, (batch, time), generator=torch.Generator().manual_seed(1))


def loop(config: DecoderOnlyConfig, weights: dict[str, np.ndarray], row: list[int]) -> np.ndarray:
    """Return the logits (T, V) of one sequence, with one query, head and key at a time."""
    width = config.head_width

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return weights[f"{name}.weight"] @ x + weights.get(f"{name}.bias", 0)

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        centred = x if config.norm == "rms" else x - x.mean()
        scaled = centred / math.sqrt((centred**2).mean() + config.norm_epsilon)
        return scaled * weights[f"{name}.weight"] + weights.get(f"{name}.bias", 0)

    def rotate(x: np.ndarray, position: int) -> np.ndarray:
        turned = x.copy()
        for pair in range(0, width, 2):
            angle = position / 10_000 ** (pair / width)
            turn = complex(x[pair], x[pair + 1]) * complex(math.cos(angle), math.sin(angle))
            turned[pair : pair + 2] = turn.real, turn.imag
        return turned

    def attention(name: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
        groups, outputs = config.key_value_heads or config.heads, []
        for last, x in enumerate(inputs):
            contexts = []
            for head in range(config.heads):
                part = slice(head * width, (head + 1) * width)
                group = head // (config.heads // groups)
                shared = slice(group * width, (group + 1) * width)
                query, scores, values = linear(f"{name}.query", x)[part], [], []
                for position in range(last + 1):
                    key = linear(f"{name}.key", inputs[position])[shared]
                    if config.positions == "rotary":
                        key = rotate(key, position)
                    turned = rotate(query, last) if config.positions == "rotary" else query
                    scores.append(turned @ key / math.sqrt(width))
                    values.append(linear(f"{name}.value", inputs[position])[shared])
                exponentials = np.exp(np.array(scores) - max(scores))
                contexts.append(exponentials / exponentials.sum() @ np.array(values))
            outputs.append(linear(f"{name}.output", np.concatenate(contexts)))
        return outputs

    def activate(x: np.ndarray) -> np.ndarray:
        if config.activation == "relu":
            return np.maximum(x, 0)
        if config.activation == "gelu":
            return np.array([v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in x])
        return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2

    def feed_forward(name: str, x: np.ndarray) -> np.ndarray:
        inner = linear(f"{name}.inner", x)
        if config.activation == "swiglu":
            gate = linear(f"{name}.gate", x)
            return linear(f"{name}.outer", gate / (1 + np.exp(-gate)) * inner)
        return linear(f"{name}.outer", activate(inner))

    states = []
    for position, token in enumerate(row):
        x = weights["embedding.weight"][token].copy()
        if config.positions == "learned":
            x += weights["positions.weight"][position]
        elif config.positions == "sinusoidal":
            x *= math.sqrt(config.hidden)
            for pair in range(0, config.hidden, 2):
                angle = position / 10_000 ** (pair / config.hidden)
                x[pair : pair + 2] += math.sin(angle), math.cos(angle)
        elif config.positions == "concatenated":
            width = config.hidden // 2
            angles = [position / 10_000 ** (pair / width) for pair in range(0, width, 2)]
            vector = [value for angle in angles for value in (math.sin(angle), math.cos(angle))]
            x = np.concatenate([x * math.sqrt(width), vector])
        states.append(x)
    for layer in range(config.layers):
        path = f"decoder.layers.{layer}"
        for part in ("attention", "feed_forward") if config.feed_forward else ("attention",):
            name = f"{path}.{part}_residual.norm"
            inputs = [norm(name, x) for x in states] if config.pre_norm else states
            if part == "attention":
                added = attention(f"{path}.self_attention", inputs)
            else:
                added = [feed_forward(f"{path}.feed_forward", x) for x in inputs]
            states = [x + y for x, y in zip(states, added, strict=True)]
            states = states if config.pre_norm else [norm(name, x) for x in states]
    if config.pre_norm:
        states = [norm("decoder.norm", x) for x in states]
    tied = config.tied and config.positions != "concatenated"
    output = weights["embedding.weight" if tied else "output.weight"]
    return np.array([output @ x for x in states])


@pytest.mark.parametrize("options", VARIANTS)
def test_logits_are_those_of_a_loop(options: dict[str, Any]) -> None:
    model, inputs = make(**options), tokens()
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    config = DecoderOnlyConfig(**{"hidden": 12, "heads": 2, "inner": 14, "layers": 2, **options})
    expected = np.stack([loop(config, weights, row) for row in inputs.tolist()])
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("options", VARIANTS)
def test_steps_equal_one_pass_also_for_chosen_hypotheses(options: dict[str, Any]) -> None:
    model, inputs = make(**options), tokens()
    whole = model.read(inputs)
    states, state = model.start(inputs[:, :4])
    torch.testing.assert_close(states, whole[:, 3:4])
    # Two hypotheses of each prompt: the true next token second, a wrong one first; then the true one remains.
    states, state = model.step(
        torch.stack([(inputs[:, 4] + 1) % SYMBOLS, inputs[:, 4]], 1), state.choose(torch.zeros(3, 2, dtype=torch.long))
    )
    torch.testing.assert_close(states[:, 1], whole[:, 4])
    state = state.keep(torch.tensor([2, 0])).choose(torch.ones(2, 1, dtype=torch.long))
    states, state = model.step(inputs[[2, 0], 5:6], state)
    torch.testing.assert_close(states[:, 0], whole[[2, 0], 5])
    assert state.time == 6


def test_recording_keeps_the_logits_and_continues_over_steps() -> None:
    model, inputs = make(), tokens()
    plain = model(inputs)
    with record(model) as records:
        torch.testing.assert_close(model(inputs), plain)
    weights = records["decoder.1.self_attention"].weights
    assert weights.shape == (3, 2, 7, 7) and not weights.triu(1).any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, 7).double())
    with record(model) as records:
        state = model.start(inputs[:, :5])[1]
        for step in (5, 6):
            state = model.step(inputs[:, step : step + 1], state)[1]
    torch.testing.assert_close(records["decoder.1.self_attention"].weights, weights)


def test_a_head_that_is_off_adds_nothing() -> None:
    model, inputs = make(feed_forward=False, layers=1), tokens()
    with intervene(model, "decoder.0.self_attention", heads=[0, 1], to="off"):
        states = model.read(inputs)
    torch.testing.assert_close(states, model.decoder.norm(model.embed(inputs)))


@pytest.mark.filterwarnings("ignore")  # warnings of PyTorch's own compiler
def test_compiled_layers_give_the_same_logits() -> None:
    model, inputs = make(norm="rms", activation="swiglu", positions="rotary"), tokens()
    plain = model(inputs)
    for layer in model.decoder.layers:
        layer.compile(backend="aot_eager", dynamic=True)
    torch.testing.assert_close(model(inputs), plain)
    torch.testing.assert_close(model(inputs[:, :4]), plain[:, :4])


def test_real_inputs_have_one_real_output() -> None:
    model = DecoderOnly(DecoderOnlyConfig(hidden=8, heads=2), symbols=1, longest=9, input_width=3)
    assert model(torch.zeros(2, 5, 3)).shape == (2, 5, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 10, "heads": 3}, "hidden 10 cannot be split into 3 heads"),
        ({"heads": 4, "key_value_heads": 3}, "heads 4 cannot share 3 heads of keys"),
        ({"head_size": 3, "positions": "rotary"}, "head width 3 is odd"),
        ({"hidden": 5, "heads": 1, "positions": "concatenated"}, "hidden 5 is odd"),
        ({"norm": "batch"}, "norm 'batch' is unknown: choose layer, rms"),
        ({"head_size": 0}, "head_size 0 is out of range"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DecoderOnlyConfig(**options)
