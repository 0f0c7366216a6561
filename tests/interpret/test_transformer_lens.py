"""Methods equal those of other code on the same parameters: TransformerLens, and the code of Hanna et al. 2024.

The tests are skipped without TransformerLens before version 4, which still has `HookedTransformer`. Patching,
attribution, lens and composition are compared with its functions. EAP, EAP-IG and edge patching rank the edges as
the package `eap` of github.com/hannamw/EAP-IG (src/eap) does; `test_edges.py` compares them with the published
formulas instead.
"""

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.interpret.edges import (
    Pass,
    edge_gradients,
    edge_patching,
    graph_of_probe,
    integrated_edge_gradients,
    score_edges,
)
from tests.interpret.subjects import language_run

pytestmark = pytest.mark.filterwarnings("ignore")
CLEAN, CORRUPTED = "ABCDAB", "BBCDAB"
LAYERS = ["decoder.0.self_attention", "decoder.1.self_attention"]
STEPS = 5
METHODS: dict[str, Any] = {
    "EAP": lambda graph, clean, corrupted, metric: score_edges(graph, clean, corrupted, edge_gradients(graph, metric)),
    "EAP-IG-inputs": integrated_edge_gradients,
    "exact": edge_patching,
}


@pytest.fixture(scope="module")
def published() -> Any:
    """Modules of the published code, which run on the CPU instead of a GPU."""
    lens = pytest.importorskip("transformer_lens", reason="needs transformer_lens<4")
    if importlib.util.find_spec("eap") is None or not hasattr(lens, "HookedTransformer"):
        pytest.skip("needs the package eap of github.com/hannamw/EAP-IG and transformer_lens<4")
    from eap import attribute, evaluate, graph  # type: ignore[import-not-found]

    zeros = torch.zeros
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            torch, "zeros", lambda *sizes, **how: zeros(*sizes, **how | ({"device": "cpu"} if "device" in how else {}))
        )
        for module in (attribute, evaluate):
            patch.setattr(module, "tokenize_plus", _tokenize)
        yield SimpleNamespace(lens=lens, attribute=attribute.attribute, Graph=graph.Graph)


def _tokenize(model: Any, tokens: Tensor, max_length: int | None = None) -> Any:
    return tokens, torch.ones_like(tokens), torch.tensor([tokens.shape[1]]), tokens.shape[1]


def convert(lens: Any, run: Any) -> Any:
    """Return a `HookedTransformer` with the parameters of a run."""
    model, config = run.model, run.config.model
    heads, width, symbols = config.heads, config.head_width, len(run.task.vocabulary)
    theirs = lens.HookedTransformer(
        lens.HookedTransformerConfig(
            n_layers=config.layers, d_model=config.hidden, n_heads=heads, d_head=width, d_mlp=config.inner,
            n_ctx=model.longest, d_vocab=symbols, act_fn=config.activation, normalization_type="LN", device="cpu",
            eps=config.norm_epsilon, use_attn_result=True, use_split_qkv_input=True, use_hook_mlp_in=True,
        )
    )  # fmt: skip
    state = {
        name: torch.zeros_like(value)
        for name, value in theirs.state_dict().items()
        if ".b_" in name or name[-2:] == ".b"
    }
    state |= {
        "embed.W_E": model.embedding.weight,
        "pos_embed.W_pos": model.positions.weight[: model.longest],
        "unembed.W_U": model.vocabulary_layer[0].T,
        "ln_final.w": model.decoder.norm.weight,
    }
    for number, block in enumerate(model.decoder.layers):
        attention, name = block.self_attention, f"blocks.{number}"
        for letter, part in zip("QKV", (attention.query, attention.key, attention.value), strict=True):
            state[f"{name}.attn.W_{letter}"] = part.weight.unflatten(0, (heads, width)).transpose(1, 2)
        state[f"{name}.attn.W_O"] = attention.output.weight.T.unflatten(0, (heads, width))
        state[f"{name}.ln1.w"] = block.attention_residual.norm.weight
        state[f"{name}.ln2.w"] = block.feed_forward_residual.norm.weight
        state[f"{name}.mlp.W_in"] = block.feed_forward.inner.weight.T
        state[f"{name}.mlp.W_out"] = block.feed_forward.outer.weight.T
    theirs.load_state_dict(theirs.state_dict() | {name: value.detach().clone() for name, value in state.items()})
    return theirs.eval()


def rename(node: str, kind: str | None = None) -> str:
    """Return Regard's name of a node of the published code."""
    if node in ("input", "logits"):
        return {"input": "inputs"}.get(node, node)
    if node.startswith("m"):
        return f"decoder.{node[1:]}.feed_forward"
    layer, _, head = node[1:].partition(".h")
    name = f"decoder.{layer}.self_attention.{head}"
    return name if kind is None else f"{name}.{ {'q': 'query', 'k': 'key', 'v': 'value'}[kind] }"


def ranks(values: Tensor) -> Tensor:
    return values.argsort().argsort().double()


@pytest.mark.parametrize("method", METHODS)
def test_edges_have_the_published_ranks(published: Any, method: str, tmp_path: Path) -> None:
    flags: dict[str, Any] = {"feed_forward": True, "hidden": 32, "heads": 4, "inner": 64, "layers": 2}
    run: Any = regard.train("induction", savepath=tmp_path, steps=100, progress=False, **flags)
    clean, corrupted = (tokens[:8] for tokens in run.unseen(2, 0))
    graphs = [graph_of_probe(run, run.trial(tokens)) for tokens in (clean, corrupted)]
    with torch.no_grad():
        whole, changed = (graph.full(1) for graph in graphs)
    passes: tuple[Pass, Pass] = whole, changed
    first, second = (int(passed.logits[0, -1].argmax()) for passed in passes)
    assert first != second

    def metric(logits: Tensor) -> Tensor:
        return logits[..., -1, first] - logits[..., -1, second]

    ours = METHODS[method](graphs[0], *passes, metric)
    theirs = convert(published.lens, run)
    assert torch.allclose(theirs(clean[None])[0], passes[0].logits[0], atol=1e-4)
    graph = published.Graph.from_model(theirs)
    published.attribute(
        theirs, graph, [(clean[None], corrupted[None], None)], lambda logits, *_: -metric(logits[0]), method,
        ig_steps=STEPS, quiet=True,
    )  # fmt: skip
    scores = {(rename(e.parent.name), rename(e.child.name, e.qkv)): float(e.score) for e in graph.edges.values()}
    assert set(scores) == set(ours)
    expected = torch.tensor([scores[edge] for edge in scores])
    actual = torch.tensor([ours[edge] for edge in scores])
    assert torch.allclose(actual, expected, atol=1e-4 * float(expected.abs().max()))
    spearman = torch.corrcoef(torch.stack([ranks(actual), ranks(expected)]))[0, 1]
    assert float(spearman) >= 0.999


class Pair:
    """A run, and the same model in TransformerLens, with the activations of a clean and a corrupted input."""

    def __init__(self, lens: Any, folder: Path) -> None:
        self.run = language_run(folder)
        self.patching = lens.patching
        self.theirs = convert(lens, self.run)
        self.tokens = [self.run.task.parse(text) for text in (CLEAN, CORRUPTED)]
        with torch.no_grad():
            self.logits, self.cache = self.theirs.run_with_cache(self.tokens[0])


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    lens = pytest.importorskip("transformer_lens", reason="needs transformer_lens<4")
    if not hasattr(lens, "HookedTransformer"):
        pytest.skip("needs transformer_lens<4")
    return Pair(lens, tmp_path_factory.mktemp("lens"))


def difference(logits: Tensor) -> Tensor:
    """The difference between two logits at the last step, of logits (T, C) or (1, T, C)."""
    last = logits.reshape(-1, logits.shape[-1])[-1]
    return last[0] - last[2]


def close(ours: Any, theirs: Tensor) -> bool:
    """Whether values differ by at most 1e-4 of the largest; measured: 5e-6."""
    theirs = theirs.detach().double()
    ours = torch.as_tensor(ours, dtype=torch.float64).reshape(theirs.shape)
    return float(theirs.abs().max()) > 1e-3 and torch.allclose(
        ours, theirs, rtol=0, atol=1e-4 * float(theirs.abs().max())
    )


@torch.no_grad()
def test_models_are_equal(pair: Pair) -> None:
    assert close(pair.run.model(pair.tokens[0]), pair.logits)


@torch.no_grad()
def test_activation_patching(pair: Pair) -> None:
    base = difference(pair.theirs(pair.tokens[1]))
    whole = difference(pair.logits) - base

    def effect(values: Tensor) -> Tensor:
        return (values - base) / whole

    ours = regard.patch(pair.run, CLEAN, CORRUPTED, metric=difference)
    heads = pair.patching.get_act_patch_attn_head_out_all_pos(pair.theirs, pair.tokens[1], pair.cache, difference)
    assert close([ours.heads[name] for name in LAYERS], effect(heads))
    one = regard.patch(pair.run, CLEAN, CORRUPTED, metric=difference, positions=0)
    layers = pair.patching.get_act_patch_mlp_out(pair.theirs, pair.tokens[1], pair.cache, difference)[:, 0]
    assert close(list(one.feed_forward.values()), effect(layers))
    states = pair.patching.get_act_patch_resid_pre(pair.theirs, pair.tokens[1], pair.cache, difference)[1, 0]
    assert close(one.states["decoder.0"], effect(states))


def test_attribution_patching(pair: Pair) -> None:
    ours = regard.attribute(
        pair.run, [CLEAN], method="attribution_patching", level="heads", target=-1, others=[CORRUPTED, CLEAN]
    ).heads
    assert ours is not None
    with torch.no_grad():
        _, corrupted = pair.theirs.run_with_cache(pair.tokens[1])
    predicted = int(pair.logits[0, -1].argmax())
    gradients: dict[str, Tensor] = {}
    with pair.theirs.hooks(
        bwd_hooks=[(lambda name: name.endswith("hook_z"), lambda grad, hook: gradients.update({hook.name: grad}))]
    ):
        pair.theirs(pair.tokens[0])[0, -1].log_softmax(-1)[predicted].backward()
    for number, name in enumerate(LAYERS):
        key = f"blocks.{number}.attn.hook_z"
        effects = ((pair.cache[key] - corrupted[key]) * gradients[key]).sum((0, 1, 3)).abs()
        assert close(ours[name], effects)


@torch.no_grad()
def test_logit_lens(pair: Pair) -> None:
    ours = regard.logit_lens(pair.run, CLEAN, count=3).probabilities
    for number, probabilities in enumerate(ours[:2]):
        states = pair.cache["resid_pre", number]
        logits = pair.theirs.unembed(pair.theirs.ln_final(states))
        assert close(probabilities, logits[0].softmax(-1).topk(3).values)


@torch.no_grad()
def test_direct_logit_attribution(pair: Pair) -> None:
    ours = regard.logit_attribution(pair.run, CLEAN, token="B").heads
    [token] = pair.run.task.parse("B").flatten().tolist()
    parts = pair.cache.stack_head_results(layer=-1, pos_slice=-1, apply_ln=True)[:, 0]
    logits = parts @ (pair.theirs.ln_final.w * pair.theirs.W_U[:, token])
    assert close([ours[name] for name in LAYERS], logits.view(2, -1))


@pytest.mark.parametrize(("kind", "letter"), [("query", "Q"), ("key", "K"), ("value", "V")])
@torch.no_grad()
def test_composition_scores(pair: Pair, kind: str, letter: str) -> None:
    ours = regard.composition(pair.run).scores
    theirs = pair.theirs.all_composition_scores(letter)[0, :, 1]
    pairs = [[ours[f"{LAYERS[0]}.{a}", f"{LAYERS[1]}.{b}.{kind}"] for b in range(2)] for a in range(2)]
    assert close(pairs, theirs)
