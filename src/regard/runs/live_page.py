"""A page of a run that answers inputs without a server: a single file that contains the parameters."""

import base64
import hashlib
import html
import json
import zlib
from collections.abc import Callable
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.arguments import public
from regard.data.batch import PairBatch, collate, read_source
from regard.data.vocabulary import CharacterVocabulary, WordVocabulary
from regard.errors import InputError
from regard.io import write_file
from regard.models.base import ModelConfig
from regard.models.query import QueryModel, QueryModelConfig
from regard.models.recurrent import RecurrentSeq2Seq
from regard.models.transformer import Transformer
from regard.runs.run_types import AnyRun
from regard.runs.sequence_run import PairRun
from regard.runs.tensor_run import AnswerRun
from regard.streams import make_generator
from regard.tasks.counting import Counting, Difference, Signal, Signal2
from regard.viz.attention_map import check_extension
from regard.viz.page import built_script, map_data, text_of_bytes

# Parameters of a model as short text, for pages that compute the model's answers.

FIRST_STEP = 2.0**-20
TRIES = 8  # Steps that are tried
CLOSE, AIM = 0.85, 0.95  # Fraction of the tolerance that ends the search, and the target for the next step
MOST = 2.0**30
"""Largest multiple, stored as a signed 4-byte integer. Finer steps do not change float32 values of this size."""


def pack_parameters(
    model: nn.Module, logits: Callable[[], list[Tensor]], *, tolerance: float
) -> tuple[dict[str, Any], float]:
    """Return the parameters as `StoredParameters` of `stored-parameters.js`, and the largest change of a logit.

    `logits` computes logits with the model. The logits change by at most `tolerance`, or by the effect of
    rounding to 30 bits of the largest parameter if that is larger.
    """
    own = {name: value.detach().clone() for name, value in model.state_dict().items()}
    exact = torch.cat([tensor.flatten() for tensor in logits()])

    def change(step: float) -> float:
        """Return the largest change of a logit if the parameters are rounded to multiples of a step."""
        model.load_state_dict({name: (value.double() / step).round() * step for name, value in own.items()})
        return float((torch.cat([tensor.flatten() for tensor in logits()]) - exact).abs().max())

    finest = max(float(value.abs().max()) for value in own.values()) / MOST
    step, steps = max(FIRST_STEP, finest), dict[float, float]()
    try:
        for _ in range(TRIES):
            steps[step] = change(step)
            if CLOSE * tolerance <= steps[step] <= tolerance:
                break
            # The change is proportional to the step, apart from noise in the maximum.
            step = max(finest, step * AIM * tolerance / max(steps[step], tolerance / 64))
    finally:
        model.load_state_dict(own)
    step = max((step for step, worst in steps.items() if worst <= tolerance), default=min(steps))
    values = np.concatenate([value.double().cpu().numpy().ravel() for value in own.values()])
    whole = np.rint(values / step).astype("<i4")
    # The sign becomes the lowest bit, so that the highest planes of small numbers are zero.
    planes = ((whole << 1) ^ (whole >> 31)).view(np.uint8).reshape(-1, 4).T.tobytes()
    packed = zlib.compress(planes, 9)
    shapes = [[name, list(value.shape)] for name, value in own.items()]
    return {"shapes": shapes, "step": step, "size": len(packed), "text": text_of_bytes(packed)}, steps[step]


MAX_PARAMETERS = 1_000_000
MAX_STEPS = 512  # Length of the longest input that a page answers
SAMPLES = 200  # Number of inputs on which the effect of rounding the parameters is measured
RANDOM_INPUTS = 50  # Number of these inputs that are stored in a page as random inputs
TOLERANCE = 9e-5
"""Largest change of a logit by rounding. The remaining tolerance, up to 1e-4, is for sums in a different order."""
WITHOUT = ("importance", "roles", "search", "values")
"""Buttons of the explorer that a page without a server does not support."""
LEAST_STEPS = {"counting": 2000, "difference": 4000}
"""Number of training steps in a page, after which all 5 seeds reach an exact match of 99 %."""
LETTER_TASKS = (Counting, Difference, Signal, Signal2)
MODELS: dict[type, str] = {QueryModel: "query", Transformer: "transformer", RecurrentSeq2Seq: "recurrent"}


def live_data(run: AnyRun) -> dict[str, Any]:
    """Return the contents of a page as `LiveData` of `live/subject.js`, including the `parameters`.

    Raises `InputError` for a run that a page cannot compute.
    """
    if (reason := _unsupported(run)) is not None:
        raise InputError(f"{run.where!r} has no live page: {reason}; regard show {run.where} serves it")
    inputs, logits, task, seen = _of_answer_run(run) if isinstance(run, AnswerRun) else _of_pair_run(run)
    parameters, change = pack_parameters(run.model, logits, tolerance=TOLERANCE)
    attention = map_data(run.attend(inputs[0]["source"]))
    layers = [{name: layer[name] for name in ("name", "title", "kind")} for layer in attention["layers"]]
    page = {"without": WITHOUT, "snapshots": False, "writes": False, "back": None, "draws": True}
    return {
        "about": {**(about := run.about()), "title": about["task"], "where": run.where, **page},
        "kind": MODELS[type(run.model)],
        "config": asdict(run.config.model),
        "task": task,
        "layers": layers,
        "opens": attention["opens"],
        "head": attention["head"],
        "seen": seen,
        "samples": inputs[:RANDOM_INPUTS],
        "parameters": parameters,
        "change": change,
        "training": _training(run),
    }


def _unsupported(run: AnyRun) -> str | None:
    """Return the reason why a page cannot compute a run, or None if the page can."""
    count = sum(value.numel() for value in run.model.parameters())
    if run.config.custom_parts:
        return f"its {run.config.custom_parts[0]} is Python code, which a page cannot run"
    if type(run.model) not in MODELS:
        return f"model {run.config.kind} is not one of {', '.join(MODELS.values())}"
    if run.config.model.attention != ModelConfig.attention:
        return f"a page does not compute the attention mechanism {run.config.model.attention}"
    if run.config.kept_heads:
        return "its heads were pruned"
    if isinstance(run, AnswerRun):
        if type(run.task) not in LETTER_TASKS:
            return f"task {run.name} is not supported in a page"
    elif not isinstance(run, PairRun) or not {*map(type, run.task.vocabularies)} <= {
        CharacterVocabulary,
        WordVocabulary,
    }:
        return "its inputs are pieces of a learned vocabulary, and a page cannot split text into such pieces"
    if count > MAX_PARAMETERS:
        return f"its model has {count:,} parameters, but a page stores at most {MAX_PARAMETERS:,}"
    return None


Described = tuple[list[dict[str, Any]], Callable[[], list[Tensor]], dict[str, Any], list[int]]
"""Random inputs as `Known` of `live/tasks.js`, a function that computes the logits of their answers, the task as
`LetterTask` or `PairTask`, and the minimum and maximum lengths of training inputs, without signals."""


def _of_answer_run(run: AnswerRun) -> Described:
    task, vary_len, model = run.task, run.config.training.vary_len, run.model.eval()
    batch = task.sample(SAMPLES, make_generator(0, "sample"), vary_len=vary_len)
    texts = [run.draw(seed=0), *(task.render(row) for row in batch.inputs)]
    known = [{"source": text, "target": "", "alignment": []} for text in texts]
    names = ("name", "vocabulary", "signals", "outputs", "classes", "accepts")
    described = {**{name: getattr(task, name) for name in names}, "max_len": run.max_len}
    logits = torch.inference_mode()(lambda: [model(batch.inputs, batch.mask)])
    return known, logits, described, [1 if vary_len else run.max_len, run.max_len]


def _of_pair_run(run: Any) -> Described:
    task, model, pairs = run.task, run.model.eval(), list(run.unseen(SAMPLES, 0))
    sources = [pair.source for pair in pairs]
    targets = list(map(task.target_vocabulary.encode, run.translate(sources)))
    batch = PairBatch(read_source(sources, task.source_vocabulary), collate(targets))
    described = {
        "name": run.name,
        "source": task.source_vocabulary.symbols,
        "target": task.target_vocabulary.symbols,
        "max_len": task.max_source,
        "most_source": min(task.longest_source, MAX_STEPS),
        "most_target": min(task.longest_target, MAX_STEPS),
        "unit": task.source_vocabulary.unit,
    }
    logits = torch.inference_mode()(lambda: [model(batch.source, batch.source_mask, batch.target_in)])
    return [pair._asdict() for pair in pairs], logits, described, [1, run.longest_seen]


def _training(run: AnyRun) -> dict[str, Any] | None:
    """Return the options with which the page trains the run's model again, or None if it cannot."""
    config = run.config
    if type(run.task) not in (Counting, Difference) or not isinstance(run, AnswerRun):
        return None
    model = config.model
    assert isinstance(model, QueryModelConfig)
    extended = model.enc_layers or model.multihead or model.pos_enc or model.self_att
    if extended or config.training.vary_len or model.score != "scaled_dot":
        return None
    recipe = config.training.optimization
    return {
        "steps": max(config.training.steps, LEAST_STEPS[run.name]),
        "batchsize": config.training.batchsize,
        "lr": config.training.lr or recipe.default_lr(model),
        "output_lr": recipe.output_lr,
        "betas": recipe.betas,
        "warmup": recipe.warmup,
    }


PAGE = files("regard.server") / "page"


@public
def write_live_page(run: AnyRun, path: str | Path) -> Path:
    """Write a page in which the model of a run answers typed inputs, without a server and without a network.

    The page shows the attention map of each answer; heads can be disabled and weights changed. Logits differ
    from PyTorch's by less than 1e-4. Raises `InputError` for a run that the page cannot compute, and
    `MachineError` if the file cannot be written.

    >>> regard.write_live_page(regard.load("runs/signal2"), "signal2.html")    # doctest: +SKIP
    """
    check_extension(Path(path), (".html",))
    write_file(Path(path), live_page(run).encode())
    return Path(path)


def live_page(run: AnyRun) -> str:
    """Return the page as HTML; raises `InputError` as `write_live_page` does."""
    data = live_data(run)
    parameters = data["parameters"].pop("text")
    # The page creates the worker from a text, because a page without a server cannot load a script file.
    worker = "" if data["training"] is None else built_script("worker")
    loader, code = built_script("loader"), built_script("live")
    packed = zlib.compress(code.encode(), 9)
    digests = (hashlib.sha256(script.encode()).digest() for script in (loader, code))
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    sources = f"script-src {hashes}; style-src 'unsafe-inline'; img-src data:; worker-src blob:"
    policy = f"default-src 'none'; {sources}"
    plain = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    sizes = f'data-packed="{len(packed)}" data-size="{len(code.encode())}"'
    scripts = (
        f'<script id="live" type="application/json">{plain}</script>\n'
        f'<script id="parameters" type="text/plain">{parameters}</script>\n'
        f'<script id="worker" type="text/plain">{worker}</script>\n'
        f'<script id="code" type="text/plain" {sizes}>{text_of_bytes(packed)}</script>\n'
        f'<script type="module">{loader}</script>'
    )
    style = _text("explorer.css")
    parts = {
        '<meta charset="utf-8">': (
            f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">'
        ),
        '<link rel="stylesheet" href="explorer.css">': f"<style>\n{style}</style>",
        '<script type="module" src="explorer.js"></script>': scripts,
        "<title>Regard: explorer</title>": f"<title>{html.escape(run.name)} · Regard</title>",
    }
    page = _text("explorer.html")
    for before, after in parts.items():
        assert page.count(before) == 1, before
        page = page.replace(before, after)
    return page


def _text(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")
