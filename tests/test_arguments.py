"""Exported functions, layers and methods refuse senseless arguments in one line, and accept meaningful ones."""

import importlib
import inspect
import pickle
import pkgutil
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import regard
from regard.arguments import _GUARDED, RANGES, _parameters, check_value, guard
from regard.attention.blocks import Decoder, DecoderLayer, Encoder, EncoderLayer
from regard.attention.layer import Attention
from regard.attention.multihead import MultiHeadAttention
from regard.errors import InputError
from regard.training.config import Options

CHECKED = guard(len).__code__  # Code of the functions that `public` returns
LEAST = 300  # Number of misuses that the generator must make at least


def branches(hint: Any) -> list[Any]:
    """Return the parts of a union, without metadata."""
    if typing.get_origin(hint) is typing.Annotated:
        return branches(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [part for branch in typing.get_args(hint) for part in branches(branch)]
    if isinstance(hint, typing.TypeVar):
        return [Any if hint.__bound__ is None else hint.__bound__]
    return [hint]


def empty(cls: Any) -> Any:
    """Return an object of a class without fields; of a protocol, an object with all its members."""
    if getattr(cls, "_is_protocol", False):
        return type("Fake", (), {name: None for name in dir(cls) if not name.startswith("_")})()
    if cls is np.ndarray or issubclass(cls, msgspec.Struct):
        return np.zeros(2) if cls is np.ndarray else None
    if issubclass(cls, tuple):
        return cls(*cls._fields)
    concrete = cls
    if inspect.isabstract(cls):
        concrete = type("Fake", (cls,), {})
        setattr(concrete, "__abstractmethods__", frozenset())  # noqa: B010
    return concrete.__new__(concrete)


def sample(hint: Any) -> Any:
    """Return a value of a type."""
    hint = branches(hint)[0]
    origin, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    plain = {
        int: 1,
        float: 0.5,
        str: "x",
        bool: False,
        Path: Path("x"),
        Tensor: torch.zeros(1, 2, 8),
        bytes: b"x",
        torch.device: torch.device("cpu"),
    }
    if origin in plain:
        return plain[origin]
    if origin in (Any, types.NoneType) or not (isinstance(origin, type) or parts):
        return None
    if origin is typing.Literal or origin is type:
        return parts[0]
    if origin is Callable:
        return lambda *_: None
    if origin is tuple:
        return tuple(sample(part) for part in parts if part is not Ellipsis)
    if issubclass(origin, Mapping | frozenset | set):
        return {} if issubclass(origin, Mapping) else origin()
    if issubclass(origin, Iterable) and origin.__module__ in ("builtins", "collections.abc"):
        return [sample(parts[0])] if parts else []
    return empty(origin)


def misuses(name: str, hint: Any) -> Iterator[Any]:
    """Yield values that a parameter of this name and type must refuse."""
    kinds = branches(hint)
    origins = [typing.get_origin(kind) or kind for kind in kinds]
    if any(
        origin is Any or not (isinstance(origin, type) or typing.get_args(kind))
        for origin, kind in zip(origins, kinds, strict=True)
    ):
        return
    choices = [choice for kind in kinds if typing.get_origin(kind) is typing.Literal for choice in kind.__args__]
    items = [
        typing.get_args(kind)[:1]
        for kind, origin in zip(kinds, origins, strict=True)
        if isinstance(origin, type) and issubclass(origin, Iterable) and origin is not str
    ]
    yield object()
    yield regard.Estimate(mean=0.0, low=0.0, high=0.0) if regard.Estimate not in origins else regard.Finding
    if types.NoneType not in origins:
        yield None
    if not {int, float} & set(origins) and 7 not in choices:
        yield 7
    if not {str, Path, torch.device} & set(origins):
        yield "casual"
    yield from [choice[:-1] + choice[-1:] * 2 for choice in choices if isinstance(choice, str)]
    if {int, float} & set(origins):
        yield from [True] if bool not in origins else []
        yield from [2.5] if float not in origins else []
        limits = [part for part in typing.get_args(hint) if hasattr(part, "low")] + (
            [RANGES[name]] if RANGES.get(name) else []
        )
        if typing.get_origin(hint) is typing.Annotated and limits:
            low, high, excluded = limits[0]
            yield from [float("nan"), low - 1, *([low] if excluded in ("low", "both") else [])]
            yield from [float("inf")] if high != float("inf") or excluded in ("high", "both") else []
    if items and all(part and part[0] is not Any for part in items):
        yield [object()]
    if Tensor in origins:
        yield from ([[1.0]], np.zeros((1, 2, 8)))
    if {str, Path} & set(origins):
        yield b"x"


def exported() -> Iterator[tuple[str, Callable[..., Any], Any, type | None]]:
    """Yield the exported functions, constructors and methods: label, callable, function and class."""
    members: dict[int, tuple[str, Any]] = {}
    for info in pkgutil.walk_packages(regard.__path__, "regard."):
        if info.name != "regard.__main__":
            for name, value in vars(importlib.import_module(info.name)).items():
                is_class = isinstance(value, type) and value in _GUARDED
                if is_class or getattr(value, "__code__", None) is CHECKED:
                    members[id(value)] = (name, value)
    for name in vars(regard)["NAMES"]:
        members.setdefault(id(getattr(regard, name)), (name, getattr(regard, name)))
    for name, value in members.values():
        if inspect.isfunction(value):
            yield name, value, inspect.unwrap(value), None
        is_checked = isinstance(value, type) and not issubclass(value, tuple | Exception)
        if is_checked and not getattr(value, "_is_protocol", False):
            if "__init__" in vars(value) and not inspect.isabstract(value):
                yield name, value, inspect.unwrap(value.__init__), value
            for method in vars(value):
                member = inspect.getattr_static(value, method)
                is_forward = issubclass(value, nn.Module) and method == "forward"  # checked after an error
                if not (method.startswith("_") or is_forward) and inspect.isfunction(member):
                    yield f"{name}.{method}", getattr(empty(value), method), inspect.unwrap(member), value


def test_misuses_of_all_exports_are_refused_in_one_line() -> None:
    """Wrong types, None, bool for int, numbers out of range, NaN, misspelled choices, wrong items, and objects of
    other classes."""
    count, wrong = 0, []
    for label, call, function, owner in exported():
        signature, hints = _parameters(function, owner)
        needed = {
            name: sample(hints.get(name, Any))
            for name, parameter in list(signature.parameters.items())[owner is not None :]
            if parameter.default is parameter.empty and parameter.kind.name in ("POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY")
        }
        for name in hints:
            if signature.parameters.get(name) is None or signature.parameters[name].kind.name.startswith("VAR_"):
                continue
            # The options of a run take one item instead of a sequence, as on the command line.
            takes_item = owner is not None and issubclass(owner, Options) and "tuple" in str(hints[name])
            for value in misuses(name, hints[name]):
                if takes_item and isinstance(value, str | int):
                    continue
                count += 1
                try:
                    call(**{**needed, name: value})
                except InputError as error:
                    if "\n" not in str(error) and name in str(error):
                        continue
                    wrong.append(f"{label}({name}={value!r:.40}): {error}")
                except Exception as error:
                    wrong.append(f"{label}({name}={value!r:.40}): {type(error).__name__} {error}")
                else:
                    wrong.append(f"{label}({name}={value!r:.40}) is accepted")
    assert count > LEAST and wrong == [], "\n".join([str(count), str(len(wrong)), *wrong])


@pytest.mark.parametrize("kind", ["casual", "nope", None, 3, True])
def test_an_unknown_kind_of_layer_is_refused(kind: Any) -> None:
    with pytest.raises(InputError, match="kind .*(choose causal, self, cross|give 'causal' or 'self' or 'cross')"):
        MultiHeadAttention(8, heads=2, kind=kind)
    with pytest.raises(InputError, match="did you mean causal"):
        Encoder(1, 8, 2, 16, kind="casual")  # passed on to the attention of each layer


STATES = torch.zeros(2, 5, 8)
TENSORS: list[Any] = [
    *(object(), None, 3, "x", [[1.0]], np.zeros((2, 5, 8)), torch.zeros(8), torch.zeros(2, 5, 7)),
    *(STATES.long(), STATES.double(), STATES.bool(), torch.zeros(2, 5, 0), torch.zeros(2, 5, 8, 1)),
]
MASKS: list[Any] = [
    *(object(), 3, "x", True, np.zeros((2, 5), bool), torch.zeros(2, 5), torch.zeros(2, 5).long()),
    *(torch.zeros(2, 4).bool(), torch.zeros(5).bool(), torch.zeros(7, 2, 5, 5).bool(), torch.zeros(()).bool()),
]


def layer_misuses() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield calls of layers with tensors, masks and options that do not fit."""
    from regard.attention.blocks import FeedForward
    from regard.attention.functional import attention_weights, weighted_sum
    from regard.attention.masks import causal_mask, length_mask
    from regard.models.decoder_only import DecoderOnly, DecoderOnlyConfig

    single, multi, encoder = Attention(), MultiHeadAttention(8, 2), EncoderLayer(8, 2, 16)
    stack, decoder, feed_forward = Encoder(2, 8, 2, 16), DecoderLayer(8, 2, 16), FeedForward(8, 16)
    for tensor in TENSORS:
        for layer in (multi, encoder, stack):
            yield type(layer).__name__, partial(lambda layer, tensor: layer(tensor), layer=layer, tensor=tensor)
        if not isinstance(tensor, Tensor) or tensor.dim() > 1:
            yield "FeedForward", partial(lambda tensor: feed_forward(tensor), tensor=tensor)
        yield "single", partial(lambda tensor: single(tensor, STATES, STATES), tensor=tensor)
        yield "decoder", partial(lambda tensor: decoder(tensor, decoder.project(STATES)), tensor=tensor)
        yield "decoder, memory", partial(lambda tensor: decoder(STATES, tensor), tensor=tensor)
        yield "decoders", partial(lambda tensor: Decoder(1, 8, 2, 16)(STATES, tensor), tensor=tensor)
        yield ("weighted sum", partial(weighted_sum, torch.zeros(2, 2, 3, 5), tensor))
    for mask in MASKS:
        yield "multi", partial(lambda mask: multi(STATES, mask=mask), mask=mask)
        yield "single", partial(lambda mask: single(STATES, STATES, STATES, mask), mask=mask)
        yield "encoder", partial(lambda mask: encoder(STATES, mask), mask=mask)
        yield "decoder", partial(lambda mask: decoder(STATES, decoder.project(STATES), mask), mask=mask)
        if not isinstance(mask, Tensor) or mask.dim() > 1:
            yield ("weights", partial(attention_weights, torch.zeros(2, 2, 5, 5), mask))
    for wrong in (object(), "no", 3, None):
        yield "causal", partial(lambda wrong: multi(STATES, causal=wrong), wrong=wrong)
        yield "prepared", partial(lambda wrong: single(STATES, STATES, STATES, prepared=wrong), wrong=wrong)
    yield "step", lambda: multi(STATES, step="last")
    yield "causal", lambda: multi.attend_self(STATES, causal="no")  # type: ignore[arg-type]
    yield "memory", lambda: multi.attend(STATES, STATES)  # type: ignore[arg-type]
    yield "states", lambda: decoder.project([1])  # type: ignore[arg-type]
    yield "width", lambda: multi.weigh(torch.zeros(1, 2, 3, 0), STATES, None, None)
    for lengths in (torch.tensor([-1, 2]), torch.tensor([1.5, 2.0]), [1, 2], torch.tensor([1j])):
        yield "lengths", partial(lambda lengths: length_mask(lengths, 3), lengths=lengths)
    yield "device", lambda: causal_mask(2, 3, "nope")  # type: ignore[arg-type]
    config = DecoderOnlyConfig(hidden=8, heads=2, inner=16, layers=1)
    language_model = DecoderOnly(config, symbols=11, longest=7)
    for tokens in (
        None,
        [[1]],
        torch.zeros(2, 5),
        torch.full((2, 5), 99),
        torch.full((2, 5), -1),
        torch.ones(2, 5, 1).long(),
    ):
        yield "language model", partial(lambda tokens: language_model(tokens), tokens=tokens)


def run_misuses(run: regard.AnswerRun, pair: regard.PairRun, layer: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield calls of functions that take a run, with inputs and names that do not fit."""
    text, unseen = run.draw(), torch.zeros(2, 3)
    for wrong in (object(), 3, 2.5, b"x", ["a"], np.zeros(3), unseen, None):
        for subject in (run, pair):
            yield "prepare", partial(lambda subject, wrong: subject.prepare(wrong), subject=subject, wrong=wrong)
            yield "losses", partial(lambda subject, wrong: subject.losses([wrong]), subject=subject, wrong=wrong)
            yield "loss", partial(lambda subject, wrong: subject.loss([wrong]), subject=subject, wrong=wrong)
            yield "look", partial(lambda subject, wrong: subject.look(wrong), subject=subject, wrong=wrong)
            yield ("patch", partial(regard.patch, subject, text, wrong))
        yield "head_effect", partial(lambda wrong: regard.head_effect(run, wrong, layer, 0), wrong=wrong)
        yield "attribute", partial(lambda wrong: regard.attribute(run, wrong), wrong=wrong)
        if wrong is not None:
            yield "weighted_values", partial(lambda wrong: regard.weighted_values(run, wrong), wrong=wrong)
    for subject in (run, pair):
        yield "loss of nothing", partial(lambda subject: subject.loss([]), subject=subject)
        yield "called", partial(lambda subject: subject.called([10**6]), subject=subject)
        yield "called", partial(lambda subject: subject.called([-1]), subject=subject)
        yield "keep_heads", partial(lambda subject: subject.keep_heads(layer, []), subject=subject)
    yield "layer", lambda: regard.head_effect(run, text, layer[:-1], 0)
    yield "head", lambda: regard.head_effect(run, text, layer, 99)
    yield "method", lambda: regard.attribute(run, text, method="ablation_meen")
    yield "method", lambda: regard.attribute(run, text, method=lambda trial: "x")
    yield "metric", lambda: regard.patch(run, text, run.draw(seed=1), metric=lambda logits: "x")  # type: ignore[arg-type, return-value]
    yield "record", lambda: regard.record(run, tokenizer=3).__enter__()
    yield "record", lambda: regard.record(run, heads=[]).__enter__()
    yield "record", lambda: regard.record(run, layers=[""]).__enter__()
    yield "figure", lambda: regard.plot("haeds", run)
    yield "page", lambda: regard.write_live_page(run, "page.nope")
    yield "flag", lambda: regard.train("counting", stepps=3)
    yield "flag", lambda: regard.train("counting", steps=True)
    yield "model", lambda: regard.train("counting", model=3)
    yield "extra", lambda: regard.compare("counting", {"steps": 3})  # type: ignore[dict-item]


def test_tensors_and_inputs_that_do_not_fit_are_refused_in_one_line(
    trained: regard.AnswerRun, translator: regard.PairRun
) -> None:
    wrong = []
    for label, call in (*layer_misuses(), *run_misuses(trained, translator, trained.layers[0].name)):
        try:
            call()
        except InputError as error:
            wrong += [f"{label}: {error}"] if "\n" in str(error) else []
        except Exception as error:
            wrong.append(f"{label}: {type(error).__name__} {error}")
        else:
            wrong.append(f"{label} is accepted")
    assert wrong == [], "\n".join(wrong)


def test_an_error_names_the_tensors() -> None:
    from regard.models.decoder_only import DecoderOnly, DecoderOnlyConfig

    with pytest.raises(InputError, match=r"MultiHeadAttention.* cannot use .*\(2, 5, 8\) float64: RuntimeError"):
        MultiHeadAttention(8, 2)(STATES.double())
    with pytest.raises(InputError, match=r"tokens \(1, 2\) int64 from 3 to 99: IndexError"):
        config = DecoderOnlyConfig(hidden=8, heads=2, inner=16, layers=1)
        DecoderOnly(config, symbols=11, longest=7)(torch.tensor([[3, 99]]))


def test_errors_of_custom_code_are_not_changed(trained: regard.AnswerRun) -> None:
    from regard.attention.scores import ScaledDot

    class Broken(ScaledDot):
        def forward(self, query: Tensor, keys: Tensor) -> Tensor:
            raise ValueError("of the user")

    with pytest.raises(ValueError, match="of the user"):
        MultiHeadAttention(8, 2, score=Broken)(STATES)
    with pytest.raises(TypeError, match="unexpected keyword argument 'hedas'"):
        MultiHeadAttention(8, hedas=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="missing"):
        regard.examine()  # type: ignore[call-arg]


def test_meaningful_values_are_accepted(trained: regard.AnswerRun, tmp_path: Path) -> None:
    from regard.attention.functional import attention_weights
    from regard.attention.masks import causal_mask

    layer = MultiHeadAttention(np.int64(8), heads=torch.tensor(2), dropout=np.float32(0.5), bias=np.bool_(True))  # type: ignore[arg-type]
    assert type(layer.heads) is int and type(layer.dropout) is float and layer.output.bias is not None
    assert causal_mask(2, 3, "cpu").shape == causal_mask(2, 3, torch.device("cpu")).shape  # type: ignore[arg-type]
    infinite = torch.tensor([[0.0, float("-inf")]])
    assert attention_weights(infinite).tolist() == [[1.0, 0.0]]
    records = []
    for heads in ([0], (0,), range(1), np.array([0]), (head for head in [0])):
        with regard.record(trained, heads=heads) as record:  # type: ignore[arg-type]
            trained.model(trained.task.parse("BCCCBAABACCCA"))
        records.append(len(record))
    assert len(set(records)) == 1 and records[0] > 0
    shown = trained.attend("BCCCBAABACCCA")
    for path in (tmp_path / "a.html", str(tmp_path / "b.html")):
        assert shown.save(path) == Path(path)
    config = regard.make_config("counting", {"steps": np.int64(3), "lr": 1, "freeze": "cross"})
    assert config.training.steps == 3 and type(config.training.lr) is float and config.training.freeze == ("cross",)
    assert pickle.loads(pickle.dumps(regard.examine)) is regard.examine
    assert str(inspect.signature(regard.examine)).startswith("(subject: ") and regard.examine.__doc__


def test_checks_are_not_compiled() -> None:
    from regard.attention.masks import length_mask

    layer = EncoderLayer(8, 2, 16, activation="gelu").eval()

    def masked(states: Tensor) -> Tensor:
        return layer(states, length_mask(torch.tensor([5, 3]), 5))

    compiled = torch.compile(masked, backend="eager", fullgraph=True)
    assert torch.equal(compiled(STATES), masked(STATES))


@pytest.mark.parametrize(
    ("value", "hint", "message"),
    [
        ("offf", typing.Literal["off", "on"] | float, "it 'offf' is unknown: choose off, on; did you mean off?"),
        ("ab", typing.Sequence[str], "it 'ab' is of type str: give a sequence of str"),
        ([1, "b"], list[int], r"it \[1, 'b'\] is of type list: give a sequence of int"),
        ({"a": 1}, Mapping[str, str], "it {'a': 1} is of type dict: give a mapping of str"),
        ("x" * 99, int, "it 'x+… is of type str: give int"),
        ("a\nb", int, r"it 'a\\nb' is of type str"),
    ],
)
def test_messages(value: Any, hint: Any, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?") if message[-1] == "?" else message):
        check_value("it", value, hint)


def test_a_number_with_thousands_of_digits_is_refused() -> None:
    with pytest.raises(InputError, match="heads with thousands of digits is out of range"):
        MultiHeadAttention(8, heads=10**5000)
