"""EAP, EAP-IG and edge patching rank the edges of a decoder-only model as the code of Hanna et al. 2024 does.

The code is the package `eap` of github.com/hannamw/EAP-IG (src/eap), which needs a TransformerLens before
version 4. The test is skipped where one of them is missing; `test_edges.py` compares with the published
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

STEPS = 5
METHODS: dict[str, Any] = {
    "EAP": lambda graph, *passes: score_edges(graph, *passes[:2], edge_gradients(graph, passes[2])),
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
            torch,
            "zeros",
            lambda *sizes, **how: zeros(*sizes, **how | ({"device": "cpu"} if "device" in how else {})),
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
