"""The parts of a score sum to the score, and equal parts that are computed by hand."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from regard.activations.components import find_components
from regard.attention.layer import trace_layer
from regard.errors import InputError
from regard.interpret.linear_pass import Contribution, LinearPass, group, own_forward_pass
from regard_lab.programs.library import PROGRAMS
from tests.interpret.bare_models import BareModel, decoder_only, query_model, tokens, transformer
from tests.lab.programs.resampling import compiled_program, make_inputs

MODELS: dict[str, Callable[[], BareModel]] = {
    "GPT-2": lambda: decoder_only(activation="gelu_tanh", bias=True),
    "Llama": lambda: decoder_only(positions="rotary", norm="rms", activation="swiglu", tied=False),
    "grouped keys, rotary": lambda: decoder_only(positions="rotary", heads=4, key_value_heads=2),
    "multi_query": lambda: decoder_only(attention="multi_query"),
    "post-norm": lambda: decoder_only(pre_norm=False, bias=True),
    "post-norm, RMSNorm": lambda: decoder_only(pre_norm=False, norm="rms"),
    "sinusoidal": lambda: decoder_only(positions="sinusoidal"),
    "only attention": lambda: decoder_only(feed_forward=False, positions="none"),
    "dot": lambda: decoder_only(attention="dot"),
    "general": lambda: decoder_only(attention="general"),
    "scalable, alibi": lambda: decoder_only(attention="scalable,alibi"),
    "t5, sink": lambda: decoder_only(attention="t5,sink"),
    "cosine": lambda: decoder_only(attention="cosine"),
    "soft_capped": lambda: decoder_only(attention="soft_capped:2"),
    "latent": lambda: decoder_only(attention="latent"),
    "shifted_keys, gate": lambda: decoder_only(attention="shifted_keys,output_gate"),
    "forgetting, head_gate": lambda: decoder_only(attention="forgetting,head_gate"),
    "selective, window": lambda: decoder_only(attention="selective,window:3"),
    "Transformer": transformer,
    "Transformer, post-norm": lambda: transformer(pre_norm=False, bias=True),
    "Transformer, rotary": lambda: transformer(positions="rotary"),
    "Transformer, concatenated": lambda: transformer(positions="concatenated"),
    "query model": query_model,
    "query model, all lengths": lambda: query_model(vary_len=True, pos_enc=True, positions="sinusoidal"),
    "query model, heads": lambda: query_model(multihead=True, enc_layers=2, self_att=True, pos_enc=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_parts_sum_to_the_score_and_to_their_parents(name: str) -> None:
    subject: Any = MODELS[name]()
    shown = subject.attend()
    for layer in subject.layers:
        queries = len(shown.layers[layer.name].query_labels)
        result = regard.why(subject, layer=layer.name, head=layer.heads - 1, output=queries - 1)
        largest = max(np.abs(result.pairs).max(), *map(abs, result.additions.values()), 1e-3)
        assert abs(result.remainder) <= 1e-5 * largest
        assert sum(part.value for part in result.query_parts) == pytest.approx(result.pairs.sum())
        assert result.pairs.sum(0) == pytest.approx([part.value for part in result.key_parts])
        assert result.weight == pytest.approx(float(shown.layers[layer.name].weights[-1, -1, result.key]))
        assert "scales of norms" in result.fixed

    result = regard.why(subject, layer=subject.layers[-1].name, head=subject.layers[-1].heads - 1, output=1)
    for depth, top in ((2, None), (5, 2)):  # each level of a trace sums to its parent
        nodes = [result.trace(depth=depth, top=top).root]
        scale = max(np.abs(result.pairs).max(), 1e-3)
        while nodes:
            node = nodes.pop()
            assert node.note == ""
            if node.children:
                assert sum(child.value for child in node.children) == pytest.approx(node.value, abs=1e-4 * scale)
            nodes += node.children


def outputs_of(subject: BareModel, names: list[str]) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the input and output of some modules."""
    kept, hooks = dict[str, tuple[Tensor, Tensor]](), []
    for name in names:

        def keep(module: Any, args: Any, output: Tensor, name: str = name) -> None:
            kept[name] = args[0][0], output[0]

        hooks.append(subject.model.get_submodule(name).register_forward_hook(keep))
    with torch.no_grad():
        subject.run()
    for hook in hooks:
        hook.remove()
    return kept


def test_parts_equal_matrix_products() -> None:
    subject: Any = decoder_only(bias=True)
    model, head, query, key = subject.model, 1, 4, 2
    first, second = model.decoder.layers[0], model.decoder.layers[1]
    names = {
        "token": "embedding",
        "contexts": "decoder.layers.0.self_attention.output",
        "feed_forward": "decoder.layers.0.feed_forward",
        "states": "decoder.layers.1.attention_residual.norm",
    }
    kept = dict(zip(names, outputs_of(subject, list(names.values())).values(), strict=True))
    states, norm, layer = kept["states"][0], second.attention_residual.norm, second.self_attention
    rows = slice(head * layer.head_width, (head + 1) * layer.head_width)

    def projected(written: Tensor, step: int, projection: Any) -> Tensor:
        """Return what a vector written at a step adds to the query or key, through the norm with its scale."""
        scale = (states[step].var(unbiased=False) + norm.eps).rsqrt()
        result: Tensor = projection.weight[rows] @ ((written - written.mean()) * scale * norm.weight)
        return result

    def parts(step: int, projection: Any) -> dict[tuple[str, int | None], Tensor]:
        contexts = kept["contexts"][0][step].unflatten(-1, (2, -1))
        columns = first.self_attention.output.weight.unflatten(1, (2, -1))
        written = {
            ("token", None): kept["token"][1][step],
            ("position", None): model.positions.weight[step],
            ("head", 0): columns[:, 0] @ contexts[0],
            ("head", 1): columns[:, 1] @ contexts[1],
            ("feed_forward", None): kept["feed_forward"][1][step],
        }
        return {name: projected(vector, step, projection) for name, vector in written.items()}

    with torch.no_grad():
        queries, keys = parts(query, layer.query), parts(key, layer.key)
        result = regard.why(subject, layer="decoder.1.self_attention", head=head, output=query, key=key)
        found = (
            [(part.kind, part.head) for part in result.query_parts],
            [(part.kind, part.head) for part in result.key_parts],
        )
        for first_name, vector in queries.items():
            for second_name, other in keys.items():
                pair = result.pairs[found[0].index(first_name), found[1].index(second_name)]
                assert pair == pytest.approx(float(vector @ other) * layer.head_width**-0.5, rel=1e-4, abs=1e-6)


def test_a_head_is_split_by_its_weights_times_its_values() -> None:
    subject: Any = decoder_only()
    first = subject.model.decoder.layers[0].self_attention
    with trace_layer(first) as traces, torch.no_grad():
        subject.run()
    linear = LinearPass(subject.model, find_components(subject.model), subject.forward_pass(""))
    call = linear.call("decoder.1.self_attention")
    source = next(part for part in linear.sources(call.query[0, 4]) if part.kind == "head" and part.head == 1)
    for part in linear.by_key(source):
        assert part.key is not None and source.jacobian is not None
        weighted = traces[0].weights[0, 1, 4, part.key] * traces[0].value[0, 1, part.key]
        assert torch.allclose(part.vector, source.jacobian @ weighted.double(), atol=1e-6)
    token = subject.model.embedding.weight[tokens()[0]].detach()
    part = linear.by_key(source)[3]
    with torch.no_grad():
        norm = subject.model.decoder.layers[0].attention_residual.norm
        states = token[3] + subject.model.positions.weight[3]
        frozen = (token[3] - token[3].mean()) * norm.weight / (states.var(unbiased=False) + norm.eps).sqrt()
        value = first.value.weight[12:] @ frozen
    [written] = [piece for piece in linear.by_writer(part) if piece.kind == "token"]
    assert part.jacobian is not None and torch.allclose(written.vector, part.jacobian @ value.double(), atol=1e-6)


def test_position_biases_are_added() -> None:
    result = regard.why(decoder_only(attention="alibi"), layer="0", head=1, output=5, key=2)  # type: ignore[arg-type]
    assert result.additions["alibi"] == pytest.approx(-3 * 2**-8)
    assert "alibi" in str(result)


def test_what_is_not_a_norm_is_named() -> None:
    for attention, words in (
        ("cosine", "lengths of queries and keys are fixed"),
        ("soft_capped", "ratio of the capped score"),
        ("forgetting", "forgetting is fixed"),
    ):
        assert words in regard.why(decoder_only(attention=attention)).fixed  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        ("additive", "the score additive is not a sum of products"),
        ("talking_heads", "talking_heads combines several scores"),
        ("differential", "differential combines several scores"),
        ("delta_rule", "delta_rule has no scores"),
    ],
)
def test_scores_that_are_not_products_are_refused(attention: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        regard.why(decoder_only(attention=attention))  # type: ignore[arg-type]


def test_bad_arguments_are_named() -> None:
    subject: Any = decoder_only()
    for options, message in (({"layer": "x"}, "layer"), ({"head": 2}, "head"), ({"key": 6}, "key")):
        with pytest.raises(InputError, match=message):
            regard.why(subject, **options)
    with pytest.raises(InputError, match="depth"):
        regard.why(subject).trace(depth=0)


def test_a_masked_key_is_named() -> None:
    result = regard.why(decoder_only(), output=1, key=4)  # type: ignore[arg-type]
    assert result.weight == 0 and "the mask hides this key" in result.fixed


def node_of(source: Contribution) -> str:
    """Return the name of the node that a circuit gives a writer."""
    if source.kind in ("token", "position", "vector"):  # the queries of a query model are positions of outputs
        return "token" if source.kind == "token" else "position"
    return f"{source.name}.{source.head}" if source.kind == "head" else source.name


def test_planted_sources_are_the_largest() -> None:
    hits = total = 0
    for name, program in PROGRAMS.items():
        compiled = compiled_program(name)
        text = "".join(program.alphabet[step % 3 % len(program.alphabet)] for step in range(program.longest))
        arguments = make_inputs(compiled, [text])[0]
        forward = own_forward_pass(compiled.model, partial(compiled.model, *arguments))
        linear = LinearPass(compiled.model, find_components(compiled.model), forward)
        for (layer, head), planted in compiled.circuit.sources.items():
            call = linear.call(layer)
            # The step that a head of a compiled model reads if no comparison is true
            reads_source = program.family == "encoder-decoder" and layer.startswith("encoder") | layer.endswith("cross")
            additional_step = call.weights.shape[-1] - 1 if reads_source else 0
            for query in range(call.weights.shape[1]):
                key = int(call.weights[head, query].argmax())
                if key == additional_step:
                    continue
                assert call.weights[head, query, key] > 0.1
                vectors = (
                    call.query[group(call.query, call.weights, head), query],
                    call.key[group(call.key, call.weights, head), key],
                )
                for vector, other, nodes in zip(vectors, vectors[::-1], planted, strict=True):
                    if nodes:
                        sources = linear.sources(vector)
                        values = [abs(float(part.vector @ other.detach().double())) for part in sources]
                        total += 1
                        hits += node_of(sources[int(np.argmax(values))]) in nodes
    assert total > 200
    assert hits / total >= 0.95, (hits, total)
