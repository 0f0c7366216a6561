"""Attribution and patching of models of four kinds equal plain gradients and hooks; refusals name the cause."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.errors import InputError
from tests.external.any_models import CLEAN, CORRUPTED, HAND, MODELS, AnyModel, Classifier, Decoder, build, draw_weights
from tests.language_models import word_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore")
OWN_WORDS = ["<pad>", "<unk>", "<mask>", "uno", "dos", "tres", "cuatro"]
QUICK = {"gpt-neox", "olmo2-grouped", "phi3-grouped", "bert", "bert-classifier", "vit", "bart"}
NAMES = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in MODELS]


@pytest.fixture
def opened(tokenizer: Any) -> Callable[[str], tuple[Any, AnyModel]]:
    """Open a model by its name in `MODELS` or `HAND`."""

    def look(name: str) -> tuple[Any, AnyModel]:
        if name in HAND:
            make, parts = HAND[name]

            def read(value: Any) -> Tensor:
                return value if isinstance(value, Tensor) else tokenizer(value, return_tensors="pt")["input_ids"]

            return regard.look(draw_weights(make()), read, inputs=parts.inputs), parts
        parts = MODELS[name]
        image = isinstance(parts.inputs[0], Tensor)
        return regard.look(build(parts), None if image else tokenizer, inputs=parts.inputs), parts

    return look


def run(subject: Any, prepared: Any) -> Tensor:
    """Return the logits (T, C) that the model computes for a prepared input."""
    arguments = prepared.arguments
    output = subject.model(**arguments) if isinstance(arguments, dict) else subject.model(*arguments)
    if isinstance(output, dict) and "start_logits" in output:
        return torch.stack([output["start_logits"][0], output["end_logits"][0]])
    logits = output if isinstance(output, Tensor) else output.get("logits", output.get("answer"))
    if type(subject.model).__name__ == "ElectraForPreTraining" or logits.dim() == 1:
        return logits.reshape(-1, 1)
    rows: Tensor = logits[0] if logits.dim() == 3 else logits
    return rows


def values_of(logits: Tensor, predicted: Tensor) -> Tensor:
    """Return the explained value (T,) of each output step."""
    if logits.shape[-1] == 1:
        return logits[:, 0]
    return logits.log_softmax(-1)[range(len(predicted)), predicted]


def choose(condition: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return `torch.where`, whose result has one type here."""
    return torch.where(condition, first, second)


def change_heads(module: nn.Module, change: Callable[[Tensor], Tensor]) -> Any:
    """Change the contexts (1, T, 4, d) before an output projection."""
    if isinstance(module, nn.MultiheadAttention):
        weight, bias = module.out_proj.weight, module.out_proj.bias
        inverse = torch.linalg.inv(weight)

        def after(module: Any, args: Any, output: Any) -> Any:
            context = (output[0] - bias) @ inverse.T
            return F.linear(change(context.unflatten(-1, (4, -1))).flatten(-2), weight, bias), output[1]

        return module.register_forward_hook(after)
    return module.register_forward_pre_hook(
        lambda module, args: (change(args[0].unflatten(-1, (4, -1))).flatten(-2), *args[1:])
    )


def check_gradients(subject: Any, parts: AnyModel) -> None:
    prepared = subject.prepare(parts.inputs[0])
    with torch.no_grad():
        predicted = run(subject, prepared).argmax(-1)
    leaves: list[Tensor] = []

    def leaf(module: Any, args: Any, output: Tensor) -> Tensor | None:
        if leaves:
            return None
        leaves.append(output.detach().clone().requires_grad_())
        return leaves[0]

    handle = subject.model.get_submodule(parts.embedding).register_forward_hook(leaf)
    values = values_of(run(subject, prepared), predicted)
    handle.remove()
    scores = regard.attribute(subject, parts.inputs[0], method="gradient").inputs
    assert scores is not None
    for step in range(0, len(values), 2):
        [gradient] = torch.autograd.grad(values[step], leaves, retain_graph=True)
        gradient = gradient[0].flatten(1).T if gradient.dim() > 3 else gradient[0]
        assert np.allclose(scores[step], gradient.norm(dim=-1), atol=1e-4, rtol=1e-3)


@torch.no_grad()
def check_heads(subject: Any, parts: AnyModel) -> None:
    prepared = [subject.patchable.prepare(value) for value in parts.inputs[:1]]
    prepared.append(subject.patchable.prepare(parts.inputs[1], prepared[0]))
    module = subject.model.get_submodule(parts.projection)
    kept: list[Tensor] = []

    def keep(context: Tensor) -> Tensor:
        kept.append(context.clone())
        return context

    handle = change_heads(module, keep)
    clean = run(subject, prepared[0])
    handle.remove()
    corrupted, predicted = run(subject, prepared[1]), clean.argmax(-1)
    off = regard.attribute(subject, [parts.inputs[0]], method="ablation_zero", level="heads").heads
    step = len(clean) - 1
    result = regard.patch(subject, *parts.inputs, answers=parts.answers, step=step)
    if parts.answers is None:
        first = second = 0
    elif parts.answers == ("ran", "small"):
        first, second = subject.tokenizer.convert_tokens_to_ids(list(parts.answers))
    else:
        first, second = (int(name.removeprefix("LABEL_")) for name in parts.answers)

    def difference(logits: Tensor) -> float:
        return float(logits[step, first] - (logits[step, second] if first != second else 0))

    whole, nothing = difference(clean), difference(corrupted)
    [layer] = [name for name, known in subject.components.heads.items() if known.projection is module]
    masks = subject.trial(subject.prepare(parts.inputs[0])).steps
    explained = list(range(len(clean))) if masks is None else list(masks)
    for head in range(4):
        one = torch.arange(4)[:, None] == head
        handle = change_heads(module, partial(choose, one, torch.zeros(())))
        without = run(subject, prepared[0])
        handle.remove()
        change = (values_of(without, predicted) - values_of(clean, predicted)).abs()[explained].mean()
        assert off is not None and off[layer][head] == pytest.approx(float(change), abs=1e-4, rel=1e-3)
        handle = change_heads(module, partial(choose, one, kept[0]))
        effect = (difference(run(subject, prepared[1])) - nothing) / (whole - nothing)
        handle.remove()
        assert result.heads[layer][head] == pytest.approx(effect, abs=1e-3, rel=1e-3)
    handle = change_heads(module, lambda contexts: kept[0])
    effect = (difference(run(subject, prepared[1])) - nothing) / (whole - nothing)
    handle.remove()
    assert result.layers[layer] == pytest.approx(effect, abs=1e-3, rel=1e-3)
    found = result.difference_clean, result.difference_corrupted
    assert found == pytest.approx((whole, nothing), abs=1e-4) and result.answers == (parts.answers or ("the value", ""))


@pytest.mark.parametrize("name", [*NAMES, *HAND])
def test_gradients_and_heads_equal_plain_hooks(opened: Any, name: str) -> None:
    subject, parts = opened(name)
    check_gradients(subject, parts)
    check_heads(subject, parts)


# By model: where the query of head 1 in the second layer is computed, and its columns.
QUERIES: dict[str, tuple[str, list[int]]] = {
    "gpt-neox": ("gpt_neox.layers.1.attention.query_key_value", list(range(24, 32))),
    "olmo2-grouped": ("model.layers.1.self_attn.q_norm", list(range(8, 16))),
    "phi3-grouped": ("model.layers.1.self_attn.qkv_proj", list(range(8, 16))),
    "falcon-grouped": ("transformer.h.1.self_attention.query_key_value", list(range(8, 16))),
    "bloom": ("transformer.h.1.self_attention.query_key_value", list(range(24, 32))),
    "llama": ("model.layers.1.self_attn.q_proj", list(range(8, 16))),
    "decoder": ("blocks.1.mixer.qkv", list(range(8, 16))),
    # The key of a head that shares no key, and a value.
    "gpt-neox key": ("gpt_neox.layers.1.attention.query_key_value", list(range(32, 40))),
    "phi3 key": ("model.layers.1.self_attn.qkv_proj", list(range(40, 48))),
    "phi3 value": ("model.layers.1.self_attn.qkv_proj", list(range(72, 80))),
    "bloom value": ("transformer.h.1.self_attention.query_key_value", list(range(40, 48))),
}


@pytest.mark.parametrize("case", QUERIES)
@torch.no_grad()
def test_paths_equal_plain_hooks(opened: Any, case: str) -> None:
    """The path from the embedding to the query of one head: heads and feed-forward layers are frozen."""
    name, _, kind = case.partition(" ")
    subject, parts = opened(name)
    layer = subject.layers[1].name
    answers = parts.answers
    result = regard.patch_paths(subject, CLEAN, CORRUPTED, f"{layer}.1.{kind or 'query'}", answers=answers)
    first, second = subject.tokenizer.convert_tokens_to_ids(list(answers)) if subject.tokenizer else map(int, answers)
    clean, corrupted = (subject.prepare(text) for text in (CLEAN, CORRUPTED))
    module, columns = QUERIES[case]
    senders = [known.projection for known in subject.components.heads.values()]
    senders += subject.components.feed_forward.values()
    frozen: dict[nn.Module, Tensor] = {}
    hooks = [
        sender.register_forward_hook(lambda module, args, output: frozen.update({module: output.clone()}))
        for sender in senders
    ]
    whole = run(subject, clean)
    for hook in hooks:
        hook.remove()
    read: list[Tensor] = []
    hooks = [sender.register_forward_hook(lambda module, args, output: frozen[module].clone()) for sender in senders]
    reader = subject.model.get_submodule(module)
    hooks.append(reader.register_forward_hook(lambda module, args, output: read.append(output.clone())))
    run(subject, corrupted)
    for hook in hooks:
        hook.remove()

    def insert(module: Any, args: Any, output: Tensor) -> Tensor:
        changed = output.clone()
        changed[..., columns] = read[0][..., columns]
        return changed

    handle = reader.register_forward_hook(insert)
    patched = run(subject, clean)
    handle.remove()
    nothing = run(subject, corrupted)
    differences = [float(logits[-1, first] - logits[-1, second]) for logits in (whole, patched, nothing)]
    expected = (differences[0] - differences[1]) / (differences[0] - differences[2])
    assert result.others["inputs"] == pytest.approx(expected, abs=1e-3, rel=1e-3)


@pytest.mark.parametrize("name", ["falcon", "albert", "torch", "deberta"])
def test_the_logits_need_no_separate_projections(opened: Any, name: str) -> None:
    subject, parts = opened(name)
    result = regard.patch_paths(subject, *parts.inputs, answers=parts.answers)
    assert result.receivers == ["logits"] and "inputs" in result.others


def test_projections_of_any_order_are_found(opened: Any) -> None:
    """The columns of a head: by head in GPT-NeoX, by kind in Phi-3, by group in Falcon, in blocks in CodeGen."""
    starts = {"gpt-neox": (24, 32, 40), "phi3": (8, 40, 72), "falcon-grouped": (8, 16, 24), "codegen": (24, 40, 32)}
    for name, expected in starts.items():
        subject, _ = opened(name)
        found, left_out = subject.components.find_inputs()
        assert not left_out and len(found) == 2
        parts = found[subject.layers[1].name].parts
        shared = [len(parts[kind].columns) for kind in ("query", "key", "value")]
        columns = [int(parts[kind].columns[1 * shared[i] // 4, 0]) for i, kind in enumerate(parts)]
        assert tuple(columns) == expected, name


def test_a_masked_model_with_its_own_vocabulary(opened: Any) -> None:
    own = word_tokenizer(OWN_WORDS, "<unk>", mask_token="<mask>")
    subject = regard.look(build(MODELS["bert"]), own)
    for text, other, step in (("uno dos <mask>", "uno tres <mask>", 2), ("uno <mask> dos", "uno <mask> tres", 1)):
        result = regard.patch(subject, text, other, answers=("uno", "dos"))
        assert result.step == step and len(result.heads) == 2
    scores = regard.attribute(subject, "uno dos", method="gradient").inputs
    assert scores is not None and scores.shape == (2, 2)
    with pytest.raises(InputError, match="'what else' has only special and unknown tokens"):
        subject.importance(["what else"])


def test_a_function_gives_what_a_tokenizer_gives(opened: Any, tokenizer: Any) -> None:
    subject, _ = opened("llama")
    other = regard.look(subject.model, lambda text: dict(tokenizer(text, return_tensors="pt")) | {}, inputs=[CLEAN])
    first, second = (regard.attribute(each, CLEAN, method="gradient").inputs for each in (subject, other))
    assert first is not None and second is not None and np.allclose(first, second, atol=1e-6)


def test_states_are_their_own_embedding() -> None:
    model = draw_weights(nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 3)))
    states = torch.randn(1, 5, 8)
    subject = regard.look(model, lambda states: states, inputs=[states])
    scores = regard.attribute(subject, states, method="gradient").inputs
    leaf = states.clone().requires_grad_()
    logits = model(leaf)[0]
    logits.log_softmax(-1)[2, logits[2].argmax()].backward()
    assert scores is not None and leaf.grad is not None
    assert np.allclose(scores[2], leaf.grad[0].norm(dim=-1), atol=1e-5)


def test_the_users_loss_is_explained(tokenizer: Any) -> None:
    model = draw_weights(Classifier(nn.Embedding(60, 32), 3))

    def read(text: str) -> Tensor:
        tokens: Tensor = tokenizer(text, return_tensors="pt")["input_ids"]
        return tokens

    def loss(model: Any, text: str) -> Tensor:
        return F.cross_entropy(model(read(text))["answer"], torch.tensor([1]))

    subject = regard.look(model, read, loss=loss, inputs=[CLEAN, CORRUPTED])
    scores = regard.attribute(subject, CLEAN, method="gradient").inputs
    kept: list[Tensor] = []

    def leaf(module: Any, args: Any, output: Tensor) -> Tensor:
        kept.append(output.detach().requires_grad_())
        return kept[-1]

    handle = model.embed.register_forward_hook(leaf)  # type: ignore[union-attr]
    loss(model, CLEAN).backward()
    handle.remove()
    assert scores is not None and np.allclose(scores[0], kept[0].grad[0].norm(dim=-1), atol=1e-5)  # type: ignore[index]
    result = regard.patch(subject, CLEAN, CORRUPTED)
    assert result.difference_clean == pytest.approx(float(loss(model, CLEAN)), abs=1e-5)
    # A class is explained in the logits.
    by_class = regard.attribute(subject, CLEAN, method="gradient", target=(0, 2)).inputs
    assert by_class is not None and not np.allclose(by_class, scores)

    def twice(model: Any, text: str) -> Tensor:
        return loss(model, text) + loss(model, text)

    with pytest.raises(InputError, match="the loss function calls Classifier 2 times"):
        regard.attribute(regard.look(model, read, loss=twice, inputs=[CLEAN]), CLEAN, method="gradient")


class Odd(nn.Module):
    """A model without one of the parts that attribution needs."""

    def __init__(self, lacks: str) -> None:
        super().__init__()
        self.lacks, self.inner = lacks, Decoder()

    def forward(self, tokens: Tensor) -> Any:
        if self.lacks == "gradient":
            with torch.no_grad():
                return self.inner(tokens)
        if self.lacks == "module":
            return self.inner.head(self.inner.blocks(self.inner.words.weight[tokens]))
        logits = self.inner(tokens)
        return logits.transpose(0, 1) if self.lacks == "batch" else logits


@pytest.mark.parametrize(
    ("lacks", "message"),
    [
        ("gradient", "the outputs of Odd have no gradient to an embedding of the input: embed tokens with a module"),
        ("module", "the outputs of Odd have no gradient to an embedding of the input: embed tokens with a module"),
        ("batch", r"Odd returned \(6, 2, 60\) for 2 copies of an input: let it return \(batch, classes\)"),
        ("row", r"Odd gets \(2, 6\): give one input in a batch of 1, such as tokens \(1, T\)"),
    ],
)
def test_refusals_name_the_cause(tokenizer: Any, lacks: str, message: str) -> None:
    def read(text: str) -> Tensor:
        tokens: Tensor = tokenizer(text, return_tensors="pt")["input_ids"]
        return tokens.expand(2, -1) if lacks == "row" else tokens

    subject = regard.look(draw_weights(Odd(lacks)), read, inputs=[CLEAN])
    with pytest.raises(InputError, match=message):
        regard.attribute(subject, CLEAN, method="gradient")


def test_heads_that_cannot_be_separated_are_named(opened: Any) -> None:
    cases = {
        "falcon": "its heads share keys and values, and its code accepts no copy for each head: choose",
        "torch": "nn.MultiheadAttention computes queries, keys and values without modules: choose the receiver",
    }
    for name, message in cases.items():
        subject, parts = opened(name)
        receiver = f"{subject.layers[0].name}.0.query"
        with pytest.raises(InputError, match=message):
            regard.patch_paths(subject, parts.inputs[0], parts.inputs[1], receiver, answers=parts.answers)
