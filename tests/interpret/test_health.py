"""Measures of attention during a training, against direct computations, and trainings that do not change."""

import contextlib
import copy
import gc
import html
import importlib
import math
import pickle
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

import regard
from regard.activations.modules import unwrap
from regard.attention.blocks import Encoder
from regard.errors import InputError
from regard.interpret.health import GRADIENTS, MEASURES, HealthMeter, WatchedInput, WatchWarning
from regard.interpret.training_warnings import find_warnings
from regard.io import read_json_lines


def direct(weights: Tensor, allowed: Tensor, scores: Tensor | None, cross: bool) -> dict[str, float]:
    """Return the measures of one head, for weights, mask and scores (B, Tq, Tk), with loops over queries."""
    rows: dict[str, list[float]] = {}
    ranks, largest = [], -math.inf
    square = weights.shape[1] == weights.shape[2] and not cross
    for sample, matrix in enumerate(weights.double()):
        mask = allowed[sample]
        queries = [q for q in range(len(matrix)) if mask[q].any() and (not square or mask[q, q])]
        first = min(key for query in queries for key in range(len(mask[query])) if mask[query, key])
        for query in queries:
            row = matrix[query]
            entropy = -sum(float(weight) * math.log(weight) for weight in row if weight > 0)
            rows.setdefault("entropy", []).append(entropy)
            if (count := int(mask[query].sum())) > 1:
                rows.setdefault("relative_entropy", []).append(entropy / math.log(count))
            rows.setdefault("largest_weight", []).append(float(row.max()))
            rows.setdefault("first_token", []).append(float(row[first]))
            if square:
                rows.setdefault("own_token", []).append(float(row[query]))
                distance = sum(float(weight) * abs(query - key) for key, weight in enumerate(row))
                rows.setdefault("distance", []).append(distance)
                if query:
                    rows.setdefault("previous_token", []).append(float(row[query - 1]))
            if scores is not None:
                largest = max(largest, float(scores[sample, query][mask[query]].max()))
        values = torch.linalg.svdvals(matrix[queries]).square()
        ranks.append(float(values.sum() ** 2 / values.square().sum()))
    means = {name: sum(numbers) / len(numbers) for name, numbers in rows.items()}
    return means | {"effective_rank": sum(ranks) / len(ranks)} | ({} if scores is None else {"largest_score": largest})


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)  # with other parameters, a step may give warnings


read_lines = partial(read_json_lines, shape=dict[str, Any], remedy="")


class SmallAttention(nn.Module):
    """Attention of nanoGPT's form, with one matrix for queries, keys and values."""

    def __init__(self, kernel: bool, norm: bool = False) -> None:
        super().__init__()
        self.c_attn, self.c_proj, self.n_head = nn.Linear(24, 72), nn.Linear(24, 24), 3
        self.kernel, self.norm = kernel, nn.LayerNorm(8) if norm else nn.Identity()

    def forward(self, states: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (3, 8)).transpose(1, 2) for part in self.c_attn(states).split(24, dim=-1)
        )
        query, key = self.norm(query), self.norm(key)
        if self.kernel:
            context = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = query @ key.mT / 8**0.5
            later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            context = scores.masked_fill(later, -torch.inf).softmax(-1) @ value
        return self.c_proj(context.transpose(1, 2).flatten(2))


class SmallGPT(nn.Module):
    def __init__(self, kernel: bool = True, norm: bool = False) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 24), nn.Linear(24, 20)
        self.blocks = nn.ModuleList([SmallAttention(kernel, norm) for _ in range(2)])
        self.dropout = nn.Dropout(0.1)

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.embedding(tokens)
        for block in self.blocks:
            states = states + self.dropout(block(states))
        return self.head(states)


TOKENS = torch.randint(1, 20, (3, 9), generator=torch.Generator().manual_seed(0))
PADDED = torch.tensor([[1] * 9, [1] * 6 + [0] * 3, [1] * 4 + [0] * 5])
SIZES: dict[str, Any] = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 20}


def hugging_face(kind: str, **options: Any) -> Callable[[], tuple[nn.Module, dict[str, Any]]]:
    def build() -> tuple[nn.Module, dict[str, Any]]:
        transformers = pytest.importorskip("transformers")
        config = transformers.AutoConfig.for_model(kind, **options)
        inputs = {"input_ids": TOKENS, "attention_mask": PADDED}
        inputs |= {"decoder_input_ids": TOKENS} if config.is_encoder_decoder else {}
        return transformers.AutoModel.from_config(config), inputs

    return build


def vision() -> tuple[nn.Module, dict[str, Any]]:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(**SIZES, intermediate_size=32, image_size=12, patch_size=4)
    return transformers.ViTModel(config), {"pixel_values": torch.rand(2, 3, 12, 12)}


MODELS = {
    "own layers": lambda: (Encoder(2, 24, 3, 32), {"states": torch.rand(2, 7, 24)}),
    "nanoGPT": lambda: (SmallGPT(), {"tokens": TOKENS}),
    "own code": lambda: (SmallGPT(kernel=False), {"tokens": TOKENS}),
    "query-key norm": lambda: (SmallGPT(norm=True), {"tokens": TOKENS}),
    "nn.Transformer": lambda: (
        nn.Transformer(24, 4, 1, 1, 32, batch_first=True),
        {"src": torch.rand(2, 7, 24), "tgt": torch.rand(2, 5, 24), "tgt_mask": torch.ones(5, 5).triu(1) > 0},
    ),
    "gpt2": hugging_face("gpt2", n_embd=24, n_layer=2, n_head=3, vocab_size=20),
    "bert": hugging_face("bert", **SIZES, intermediate_size=32),
    "llama": hugging_face("llama", **SIZES | {"num_attention_heads": 4, "hidden_size": 32}, num_key_value_heads=2),
    "t5": hugging_face("t5", d_model=24, d_kv=8, num_heads=3, num_layers=2, d_ff=32, vocab_size=20),
    "gemma2": hugging_face("gemma2", **SIZES, num_key_value_heads=1, head_dim=8, intermediate_size=32),
    "qwen3": hugging_face("qwen3", **SIZES, num_key_value_heads=3, head_dim=8, intermediate_size=32),
    "opt": hugging_face("opt", **SIZES, ffn_dim=32, word_embed_proj_dim=24),
    "vit": vision,
}


@pytest.mark.parametrize("name", MODELS)
def test_measures_are_those_of_a_direct_computation(name: str) -> None:
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    meter = HealthMeter(model)
    measures = meter.measure(WatchedInput((), inputs))
    model.eval()
    names = ["*.scores", "*.z"][: 2 if name != "own code" else 1]
    with torch.no_grad(), regard.record(model) as records, regard.record(model, *names) as inner:
        model(**inputs)
    assert len(measures) == len(records)
    for (layer, heads), record in zip(measures.items(), records.values(), strict=True):
        mask = torch.ones(1, 1, 1, 1, dtype=torch.bool) if record.mask is None else record.mask
        mask = mask.expand(record.weights.shape)
        scores = inner.get(f"{layer}.scores")
        contexts = inner.get(f"{layer}.z")
        assert len(heads) == record.weights.shape[1]
        for head, numbers in enumerate(heads):
            chosen = None if scores is None else scores[:, head]
            expected = direct(record.weights[:, head], mask[:, head], chosen, layer.endswith("cross"))
            assert {name: numbers[name] for name in expected} == pytest.approx(expected, rel=1e-5, abs=1e-5)
            if contexts is not None:
                own = mask[:, head].any(-1)
                if mask.shape[2] == mask.shape[3] and not layer.endswith("cross"):
                    own = own & mask[:, head].diagonal(dim1=1, dim2=2)
                norms = contexts[:, :, head].norm(dim=-1)
                assert numbers["context_norm"] == pytest.approx(float(norms[own].mean()), rel=1e-5)
                assert numbers["contribution_norm"] and -1 <= (numbers["similarity"] or 0) <= 1.00001
    if name != "own code":
        unknown = {key for heads in measures.values() for head in heads for key in head if head[key] is None}
        assert unknown <= {"own_token", "previous_token", "distance"}


def test_contributions_are_those_of_the_heads_alone() -> None:
    model = SmallGPT()
    measures = HealthMeter(model).measure(WatchedInput((TOKENS,), {}))
    with torch.no_grad(), regard.record(model.eval(), "*.z") as inner:
        model(TOKENS)
    for layer, block in enumerate[Any](model.blocks):
        contexts, name = inner[f"layer.{layer}.z"], f"layer.{layer}"
        added = []
        for head in range(3):
            alone = torch.zeros_like(contexts)
            alone[:, :, head] = contexts[:, :, head]
            added.append((block.c_proj(alone.flatten(2)) - block.c_proj.bias).detach())
        for head, numbers in enumerate(measures[name]):
            assert numbers["contribution_norm"] == pytest.approx(float(added[head].norm(dim=-1).mean()), rel=1e-5)
            others = [
                F.cosine_similarity(added[head].flatten(), added[other].flatten(), 0) for other in {0, 1, 2} - {head}
            ]
            assert numbers["similarity"] == pytest.approx(float(max(others)), abs=1e-5)


def train(model: Any, watch: dict[str, Any] | None, *, kind: str = "", steps: int = 7) -> tuple[list[float], Any]:
    """Train on random tokens with dropout; return the loss of each step, and the watch."""
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    losses, scaler = [], torch.amp.GradScaler("cpu") if kind == "scaler" else None
    found = None if watch is None else regard.watch(model, every=3, **watch)
    with found or contextlib.nullcontext():
        for step in range(steps):
            batch = torch.randint(1, 20, (4, 10))
            with torch.autocast("cpu", torch.bfloat16, enabled=kind in ("autocast", "scaler")):
                loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1).float(), batch[:, 1:].flatten())
            losses.append(loss.item())
            if scaler is not None:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                continue
            loss.backward()
            if kind != "accumulation" or step % 2:
                optimizer.step()
                optimizer.zero_grad()
    return losses, found


class Checkpointed(SmallGPT):
    def forward(self, tokens: Tensor) -> Tensor:
        states = self.embedding(tokens)
        for block in self.blocks:
            states = states + self.dropout(checkpoint(block, states, use_reentrant=False))
        return self.head(states)


@pytest.mark.parametrize(
    "kind", ["plain", "autocast", "scaler", "accumulation", "checkpoint", "compile", "compiled in place"]
)
def test_a_watched_training_has_the_same_losses(kind: str, tmp_path: Path) -> None:
    def build() -> Any:
        torch.manual_seed(0)
        model: Any = Checkpointed() if kind == "checkpoint" else SmallGPT()
        if kind == "compiled in place":
            model.compile(backend="aot_eager")
        return torch.compile(model, backend="aot_eager") if kind == "compile" else model

    expected, _ = train(build(), None, kind=kind, steps=8)
    torch._dynamo.reset()
    losses, watch = train(build(), {"out": tmp_path / "watch"}, kind=kind, steps=8)
    assert losses == expected
    about, *rows = read_lines(tmp_path / "watch" / "watch.jsonl")
    assert about == {"watch": type(unwrap(build())).__name__, "parameters": 5780}
    assert rows == watch.rows
    steps = [0, 3] if kind == "accumulation" else [0, 3, 6]
    assert [(row["step"], row["layer"], row["head"]) for row in rows] == [
        (step, layer, head) for step in steps for layer in ("layer.0", "layer.1") for head in range(3)
    ]
    assert all(row[name] is not None for row in rows for name in MEASURES)
    assert all(row[name] is not None for row in rows for name in GRADIENTS)


def test_gradients_are_those_of_queries_and_keys() -> None:
    torch.manual_seed(0)
    norms = []
    model: Any = SmallGPT()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with regard.watch(model, every=1) as watch:
        for _ in range(2):
            model(TOKENS).square().mean().backward()
            query, key, _ = model.blocks[1].c_attn.weight.grad.double().chunk(3)
            norms.append([float(query.norm()), float(key.norm())])
            optimizer.step()
            optimizer.zero_grad()
    rows = [row for row in watch.rows if row["layer"] == "layer.1" and row["head"] == 0 and row["step"]]
    assert watch.rows[0]["query_gradient"] is not None  # before the first step
    assert [[row[name] for name in GRADIENTS] for row in rows] == [pytest.approx(pair, rel=1e-5) for pair in norms]


def train_shared(rank: int, folder: Path, kind: str) -> None:
    """Train in one of two processes. All models are freed before the processes part: later, gloo may hang."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    (folder / f"rank-{rank}").write_text(compare_losses(folder, kind))
    gc.collect()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def compare_losses(folder: Path, kind: str) -> str:
    """Train unwatched and watched; return whether the losses are equal, and all measures known, and the rows."""

    def build() -> Any:
        torch.manual_seed(0)
        model = SmallGPT()
        if kind == "ddp":
            return nn.parallel.DistributedDataParallel(model)
        for block in model.blocks:
            fully_shard(block)
        return fully_shard(model)

    expected, _ = train(build(), None)
    losses, watch = train(build(), {"out": folder / "watch"})
    known = MEASURES | (GRADIENTS if kind == "ddp" else {})
    complete = all(row[name] is not None for row in watch.rows for name in known if row["step"])
    assert set(GRADIENTS) - set(known) == set(watch.meter.left_out)
    return f"{losses == expected} {complete} {len(watch.rows)}"


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_watched_training_in_two_processes_has_the_same_losses(kind: str, tmp_path: Path) -> None:
    torch.multiprocessing.spawn(train_shared, (tmp_path, kind), nprocs=2)
    assert [(tmp_path / f"rank-{rank}").read_text() for rank in range(2)] == ["True True 18"] * 2
    # Under FSDP2, a line says that gradients are not measured.
    assert len([*read_lines(tmp_path / "watch" / "watch.jsonl")]) == 19 + (kind == "fsdp")


def run_steps(model: nn.Module, optimizer: Any, steps: int, **options: Any) -> Any:
    with regard.watch(model, every=2, **options) as watch:
        pickle.dumps(copy.deepcopy(model))  # as an average of weights, or a checkpoint
        for _ in range(steps):
            model(TOKENS).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        watch.note(loss=torch.tensor(math.nan, requires_grad=True))
    return watch


def test_an_interrupted_training_continues_its_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = SmallGPT()
    model.dropout.p = 0.0
    optimizer = torch.optim.AdamW(model.parameters())
    run_steps(model, optimizer, 4, out=tmp_path, probe=TOKENS, resume=True)  # there is nothing to continue
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    run_steps(model, optimizer, 4, out=tmp_path, probe=TOKENS, resume=True)
    expected = [*read_lines(tmp_path / "watch.jsonl")]
    assert expected[-1] == {"step": 8, "loss": None}
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    with (tmp_path / "watch.jsonl").open("a") as file:
        file.write('{"step": 8, "lay')
    run_steps(model, optimizer, 4, out=tmp_path, probe=TOKENS, resume=True)
    assert [*read_lines(tmp_path / "watch.jsonl")] == expected
    assert "on another probe" in run_steps(model, optimizer, 1, out=tmp_path, resume=True).notes[-2]["error"]
    assert sorted({row["step"] for row in expected[1:]}) == [0, 2, 4, 6, 8]


def test_refused_folders(tmp_path: Path) -> None:
    model = SmallGPT()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run_steps(model, optimizer, 2, out=tmp_path)
    with pytest.raises(InputError, match="exists: continue it with resume=True"):
        run_steps(model, optimizer, 2, out=tmp_path)
    other = Checkpointed()
    with pytest.raises(InputError, match="is of another model"):
        run_steps(other, torch.optim.SGD(other.parameters(), 0.1), 2, out=tmp_path, resume=True)
    with regard.watch(model, out=tmp_path / "new", every=1):
        with pytest.raises(InputError, match="is being written by"), regard.watch(model, out=tmp_path / "new"):
            pass
        model(TOKENS).mean().backward()
        optimizer.step()
    with pytest.raises(InputError, match="every=0: give a number of training steps"):
        regard.watch(model, every=0)


def row(step: int, head: int = 0, **numbers: Any) -> dict[str, Any]:
    usual = {"entropy": 2.0, "relative_entropy": 0.8, "largest_score": 1.0, "contribution_norm": 1.0, "similarity": 0.2}
    return {"step": step, "layer": "layers.0", "head": head, **usual, "finite": True, **numbers}


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("entropy collapse", {"relative_entropy": 1e-6}),
        ("growing scores", {"largest_score": 1e6}),
        ("dead head", {"contribution_norm": 1e-9}),
        ("dead head", dict.fromkeys(("entropy", "relative_entropy", "largest_score", "contribution_norm"))),
        ("copied heads", {"similarity": 1.0}),
        ("sudden change", {"relative_entropy": 1.0}),
        ("not a number", {"finite": False}),
    ],
)
def test_each_kind_of_warning(kind: str, numbers: dict[str, Any]) -> None:
    before = [row(1, 0, relative_entropy=0.01 if kind == "sudden change" else 0.8), row(1, 1)]
    found = find_warnings([row(2, 0, **numbers), row(2, 1)], before)
    assert (kind, 0) in [(warning["warning"], warning["head"]) for warning in found]
    assert all(warning["head"] == 0 for warning in found)
    assert not find_warnings([row(2, 0), row(2, 1)], [row(1, 0), row(1, 1)])


def test_a_warning_is_given_once_and_stands_in_the_file_and_on_the_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    torch.manual_seed(0)
    model = SmallGPT()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(30)  # scores far above those of healthy trainings
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
    with pytest.warns(WatchWarning) as given, regard.watch(model, every=1, out=tmp_path) as watch:
        for step in range(3):
            model(TOKENS).square().mean().backward()
            optimizer.step()
            watch.note(loss=float(step))
    lines = [str(warning.message) for warning in given]
    assert len([line for line in lines if "growing scores" in line]) == 1
    assert all("healthy trainings gave it" in line for line in lines)
    record = regard.read_watch(tmp_path)
    assert record.warnings == watch.warnings
    assert record.rows == watch.rows
    assert record.notes == watch.notes
    with regard.record(model.eval(), "layer.1.weights") as cache:
        model(TOKENS[:1])
    assert torch.equal(record.pictures[1]["layer.1"], (255 * cache["layer.1.weights"][0]).round().byte())
    assert not torch.equal(record.pictures[0]["layer.1"], record.pictures[1]["layer.1"])
    page = record.to_html(tmp_path / "watch.html").read_text(encoding="utf-8")
    assert all(line.removesuffix(".") in html.unescape(page) for line in lines if line.startswith("step 0"))
    assert page == watch.to_html(tmp_path / "again.html").read_text(encoding="utf-8")
    assert page.count('<section class="head"') == 6 and page.count('src="data:image/png') == 12
    (tmp_path / "weights-last.safetensors").write_bytes(b"no tensors")
    with pytest.raises(InputError, match="weights-last.safetensors' is damaged"):
        regard.read_watch(tmp_path)
    with pytest.raises(InputError, match="nothing was measured"):
        regard.WatchRecord().to_html(tmp_path / "empty.html")


def test_measures_go_to_tensorboard_and_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    wandb, model = mock.Mock(), SmallGPT()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    watch = run_steps(model, torch.optim.SGD(model.parameters(), 0.1), 4, out=tmp_path, tensorboard=True)
    scalars = events.EventAccumulator(str(tmp_path)).Reload().Scalars("entropy/layer.1/head 2")
    rows = [row for row in watch.rows if (row["layer"], row["head"]) == ("layer.1", 2)]
    for event, row, call in zip(scalars, rows, wandb.run.log.call_args_list, strict=True):
        assert event.step == call.args[0]["watched step"] == row["step"] and call.kwargs == {"commit": False}
        assert call.args[0]["entropy/layer.1/head 2"] == row["entropy"] == pytest.approx(event.value)
    with pytest.raises(InputError, match="tensorboard needs out"):
        regard.watch(model, tensorboard=True)


@pytest.mark.parametrize("task", ["counting", "copy", "induction"])
def test_train_has_a_watch(task: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"hidden": 8, "batchsize": 4, "progress": False}
    plain = regard.train(task, steps=4, savepath=tmp_path / "plain", **options)
    regard.train(task, steps=2, savepath=tmp_path / "watched", watch=2, **options)
    run = regard.train(task, steps=4, savepath=tmp_path / "watched", resume=True, progress=False)
    record = regard.read_watch(run.folder / "watch")
    head = [row["step"] for row in record.rows if (row["layer"], row["head"]) == (record.rows[0]["layer"], 0)]
    assert head == [0, 2, 4] and [note["step"] for note in record.notes] == [2, 4]
    again = regard.train(task, steps=4, savepath=tmp_path / "again", watch=3, **options)
    for name, value in plain.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], value)


def test_the_served_page_follows_the_files(tmp_path: Path) -> None:
    client_module, server = pytest.importorskip("starlette.testclient"), importlib.import_module("regard.server.watch")
    model = SmallGPT()
    client = client_module.TestClient(server.make_app(tmp_path, hosts=None, token=None))
    assert "watch.jsonl" in client.get("/").text  # does not exist yet
    run_steps(model, torch.optim.SGD(model.parameters(), 0.1), 2, out=tmp_path)
    answer = client.get("/")
    assert "steps 0 to 2:" in answer.text and answer.headers["content-security-policy"] == "frame-ancestors 'none'"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_does_not_end_the_training(tmp_path: Path) -> None:
    model = SmallGPT()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.warns(UserWarning, match="is not written from step 0 on"), regard.watch(model, every=1) as watch:
        watch._file = Path("/dev/full").open("a")  # noqa: SIM115
        model(TOKENS).mean().backward()
        optimizer.step()
    assert len(watch.rows) == 12


def test_a_model_that_cannot_be_measured_trains_on() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    warned = pytest.warns(UserWarning, match="measures nothing from step 0 on")
    with warned, regard.watch(model, probe=torch.zeros(1, 5)):
        optimizer.step()
    with pytest.warns(UserWarning, match="no optimizer of PyTorch changed the model"), regard.watch(model):
        pass


def test_what_is_not_measured_is_said(tmp_path: Path) -> None:
    linear = type("LinearAttention", (nn.Linear,), {})  # its name shows that it mixes steps
    model = nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), linear(4, 4))
    watching = regard.watch(model, every=1, out=tmp_path, probe=torch.zeros(1, 3, 4))
    with pytest.warns(UserWarning, match="regard.watch: not recorded: 1.q"), watching:
        model(torch.ones(1, 3, 4)).mean().backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
    said = [note["error"] for note in regard.read_watch(tmp_path).notes]
    assert len(said) == 1 and "1.weights" in said[0] and said[0] in watching.to_html(tmp_path / "page.html").read_text()


class Texts(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": TOKENS[index % 3], "labels": TOKENS[index % 3]}


def test_the_trainer_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.GPT2Config(n_embd=24, n_layer=2, n_head=3, vocab_size=20, bos_token_id=0, eos_token_id=0)
    callback = regard.WatchCallback(every=2, out=tmp_path / "watch")
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=4, logging_steps=2, per_device_train_batch_size=4, report_to=[], use_cpu=True
    )
    transformers.Trainer(
        transformers.GPT2LMHeadModel(config), arguments, train_dataset=Texts(), callbacks=[callback]
    ).train()
    _, *rows = read_lines(tmp_path / "watch" / "watch.jsonl")
    assert [row["step"] for row in rows if "loss" in row] == [2, 4]
    assert len([row for row in rows if "head" in row]) == 3 * 6


@pytest.mark.filterwarnings("ignore")
def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = SmallGPT()

        def training_step(self, batch: dict[str, Tensor]) -> Tensor:
            return F.cross_entropy(self.model(batch["input_ids"]).flatten(0, 1), batch["labels"].flatten())

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    trainer = lightning.Trainer(
        max_steps=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        callbacks=[regard.WatchCallback(every=2, out=tmp_path / "watch")], default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(Texts(), 4))
    assert len([*read_lines(tmp_path / "watch" / "watch.jsonl")]) == 1 + 3 * 6  # after steps 1, 2 and 4
