"""Explanation methods: the table of all methods, and their results on a run or an external model."""

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Group, RenderableType
from torch import Tensor
from torch.nn.functional import pad

from regard.arguments import public
from regard.errors import InputError, check_range, unknown_choice
from regard.interpret import edges
from regard.interpret.attribution import attention, effects
from regard.interpret.attribution.trial import (
    LEVELS,
    MOST_ROWS,
    Background,
    Level,
    MethodFunction,
    Trial,
    as_array,
    change_embedding,
    input_scores,
)
from regard.libraries import import_library, library_errors
from regard.plugins import import_plugin
from regard.result import Result, plain_table
from regard.statistics import auroc
from regard.viz.attention_map import AttentionMap
from regard.viz.subject import Subject, check_subject

LISTED_INPUTS = 5  # Inputs of an output step that the table lists
LISTED_EDGES = 20  # Edges that the table lists


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Attribution(Result):
    """Scores of inputs, heads or edges: the larger, the more important by this method."""

    method: str
    level: Level
    input: str
    """The input, or the number of inputs over which the scores are averaged."""
    source: str = ""
    """Paper of the method."""
    target: list[str] = field(default_factory=list)
    """The explained class of each output step."""
    steps: list[int] = field(default_factory=list)
    """The output steps that are explained; the rows of `inputs`."""
    inputs: np.ndarray | None = None
    """(Tq, Tk): the score of each input for each output step."""
    heads: dict[str, np.ndarray] | None = None
    """By layer: (H,), the score of each head."""
    edges: dict[tuple[str, str], float] | None = None
    """By sender and receiver: the score of the edge."""
    labels: list[str] = field(default_factory=list)
    """Name of each input, if known."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Layers without a score, with the reason."""
    remarks: list[str] = field(default_factory=list)
    """Sentences on what the scores leave out or approximate."""

    def ranked(self) -> list[tuple[float, str, int]]:
        """Return the heads by descending score: (score, layer, head)."""
        heads = self.heads or {}
        scores = [(float(score), name, head) for name, layer in heads.items() for head, score in enumerate(layer)]
        return sorted(scores, key=lambda item: -item[0])

    def summary(self) -> str:
        return f"{self.method} of {self.level}, {self.input}"

    def table(self) -> RenderableType:
        if self.inputs is not None:
            table = plain_table(("output", "class", "inputs with the largest scores"))
            names = self.labels or [""] * self.inputs.shape[1]
            for step, target, scores in zip(self.steps, self.target, self.inputs, strict=True):
                order = np.argsort(-scores, kind="stable")[:LISTED_INPUTS]
                listed = (f"{names[index]}[{index}] {scores[index]:.3g}" for index in order)
                table.add_row(str(step), target, "  ".join(listed))
        elif self.heads is not None:
            most = max((len(scores) for scores in self.heads.values()), default=0)
            table = plain_table(("layer", *(f"head {head}" for head in range(most))))
            for name, scores in self.heads.items():
                table.add_row(name, *(f"{score:.4g}" for score in scores))
        else:
            ranked = sorted((self.edges or {}).items(), key=lambda item: -item[1])[:LISTED_EDGES]
            rows = ((sender, receiver, f"{score:.4g}") for (sender, receiver), score in ranked)
            table = plain_table(("from", "to", "score"), rows)
        left_out = [f"left out: {name} ({reason})" for name, reason in self.left_out.items()]
        return Group(f"{self.method} ({self.level}): {self.input}", table, *self.remarks, *left_out)

    def json(self) -> dict[str, Any]:
        edges = None if self.edges is None else {f"{a} -> {b}": score for (a, b), score in self.edges.items()}
        return {**super().json(), "edges": edges}


class Method(NamedTuple):
    """An explanation method, with a function for each of its levels."""

    name: str
    source: str  # Paper, or a description
    functions: Mapping[Level, MethodFunction]

    @property
    def levels(self) -> tuple[Level, ...]:
        return tuple(self.functions)


def oracle(trial: Trial[Any]) -> Any:
    """Return the known answer: `truth`, or the task's relevant inputs. Raises `InputError` without one."""
    if trial.truth is not None:
        return trial.truth
    if trial.level == "inputs" and trial.probe.relevant is not None:
        return trial.probe.relevant[trial.steps].astype(float)
    raise InputError(f"oracle: the important {trial.level} of {trial.subject.name} are not known; pass truth=")


def random_heads(trial: Trial[Any]) -> dict[str, np.ndarray]:
    generator = trial.draws("random")
    return {layer.name: torch.rand(layer.heads, generator=generator).numpy() for layer in trial.subject.layers}


SOURCES: dict[str, str] = json.loads(Path(__file__).with_name("sources.json").read_text(encoding="utf-8"))
"""Paper, or description, of each method."""
FUNCTIONS: dict[Level, dict[str, MethodFunction]] = {
    "inputs": {
        "attention": lambda trial: attention.last_weights(trial).mean(0),
        "best_head": attention.best_head,
        "weighted_values": attention.weighted_values,
        "attention_x_gradient": attention.weights_times_gradient,
        "rollout": attention.input_rollout,
        "flow": attention.flow,
        "value_zeroing": attention.value_zeroing,
        "gradient": lambda trial: effects.own_gradients(trial).norm(dim=-1),
        "gradient_x_input": lambda trial: (effects.own_gradients(trial) * trial.embedding).sum(-1).abs(),
        "integrated_gradients": lambda trial: effects.integrated_gradients(
            trial, torch.zeros_like(trial.embedding)
        ).abs(),
        "integrated_gradients_mean": lambda trial: effects.integrated_gradients(trial, trial.mean_embedding).abs(),
        "ablation_zero": lambda trial: effects.replace_each(trial, torch.zeros_like(trial.embedding)),
        "ablation_mean": lambda trial: effects.replace_each(trial, trial.mean_embedding),
        "ablation_resampled": lambda trial: effects.token_changes(trial, effects.resampled_tokens(trial)),
        "other_tokens": lambda trial: effects.token_changes(trial, effects.other_tokens(trial)),
        "oracle": oracle,
        "random": lambda trial: torch.rand(len(trial.steps), len(trial.embedding), generator=trial.draws("random")),
    },
    "heads": {
        "attention": attention.confidence,
        "weighted_values": attention.weighted_confidence,
        "output_norm": attention.output_norms,
        "ablation_zero": lambda trial: effects.replace_heads(trial, lambda name, own: torch.zeros_like(own)[None]),
        "ablation_mean": lambda trial: effects.replace_heads(
            trial, lambda name, own: trial.background.mean_contexts(name, len(own))[None]
        ),
        "ablation_resampled": effects.resampled_heads,
        "gate": lambda trial: effects.first_order(trial, {name: -own for name, own in trial.contexts.items()}),
        "attribution_patching_mean": effects.mean_patching,
        "logit_attribution": effects.direct_parts,
        "attribution_patching": edges.attribution_patching,
        "oracle": oracle,
        "random": random_heads,
    },
    "edges": {
        "edge_patching": lambda trial: edges.mean_edges(trial, edges.edge_patching),
        "eap": edges.eap,
        "eap_ig": lambda trial: edges.mean_edges(trial, edges.integrated_edge_gradients),
        "oracle": oracle,
        "random": edges.random_edges,
    },
}
METHODS = {
    name: Method(name, source, {level: known[name] for level, known in FUNCTIONS.items() if name in known})
    for name, source in SOURCES.items()
}
"""By name: all explanation methods."""
DEFAULT_METHOD = "ablation_mean"
HEAD_INPUTS = 20  # Unseen inputs over which scores of heads and edges are averaged by default


@public
def attribute(
    subject: Subject[Any],
    input: Any = None,
    *,
    method: str | MethodFunction = DEFAULT_METHOD,
    level: Level = "inputs",
    target: int | tuple[int | None, int | None] | None = None,
    others: Sequence[Any] | None = None,
    truth: Any = None,
    seed: int = 0,
) -> Attribution:
    """Return the scores of inputs, heads or edges by an explanation method: the larger, the more important.

    `subject`: a run, or a result of `look`. `input`: a text, or an input of `unseen`. At the levels of heads and
    edges also a list of inputs, or a number of unseen inputs, over which scores are averaged (None: 20; fewer if
    the subject has fewer). `method`: a name in `METHODS`, a method of another library such as
    `captum:ShapleyValueSampling` or `inseq:occlusion`, `module:function`, or a function of a `Trial`.
    `target`: the explained output step, or (step, class); None for every step and the predicted class. `others`:
    inputs for means and resampling (None: unseen inputs). `truth`: the answer for the method oracle.

    >>> result = regard.attribute(run, "BCCCBAABACCCA", method="gradient")    # doctest: +SKIP
    >>> result.inputs.shape    # doctest: +SKIP
    (3, 13)

    Raises `InputError` for an unknown method, a method without this level, and an input that the model rejects.
    """
    check_subject(subject)
    chosen = find_method(method, level)
    # All inputs share the background, so that its embeddings and contexts are computed once.
    background = Background(subject, None if others is None else list(map(subject.prepare, others)), seed=seed)
    step, label = target if isinstance(target, tuple) else (target, None)
    trials = [
        Trial(subject, prepared, level, step, label, seed, truth, background)
        for prepared in _inputs(subject, input, level, seed)
    ]
    scores = [run_method(chosen.functions[level], trial) for trial in trials]
    if level == "inputs":
        trials[0].remarks += _misleading(chosen.name, scores[0], trials[0].probe.relevant)
    first = trials[0]
    shown = subject.look(first.input)
    name = shown.input if len(trials) == 1 else f"mean over {len(trials)} inputs"
    labels = _labels(shown, first) if level == "inputs" else []
    return Attribution(
        method=chosen.name,
        level=level,
        input=name,
        source=chosen.source,
        target=subject.called([int(first.classes[step]) for step in first.steps]) if len(trials) == 1 else [],
        steps=first.steps if len(trials) == 1 else [],
        inputs=scores[0] if level == "inputs" else None,
        heads=average(scores) if level == "heads" else None,
        edges=average(scores) if level == "edges" else None,
        labels=labels,
        left_out={name: reason for trial in trials for name, reason in trial.left_out.items()},
        remarks=list(dict.fromkeys(remark for trial in trials for remark in trial.remarks)),
    )


ZERO_BASELINES = ("gradient_x_input", "integrated_gradients", "ablation_zero", "captum:")
"""Methods that compare an input with a zero embedding, which no input has."""


def _misleading(method: str, scores: np.ndarray, relevant: np.ndarray | None) -> list[str]:
    """Return a warning if scores (S, Tk) rank the relevant inputs (S, Tk) worse than chance, or could do so."""
    zero = method.startswith(ZERO_BASELINES) and method != "integrated_gradients_mean"
    way_out = " It compares with a zero embedding, which no input has: choose other_tokens." if zero else ""
    if relevant is None:
        return [f"{method} can rank worse than chance; the relevant inputs are not known.{way_out}"] if zero else []
    areas = [auroc(row[: len(truth)], truth) for row, truth in zip(scores, relevant, strict=False)]
    known = [area for area in areas if area is not None]
    if not known or np.mean(known) >= 0.5:
        return []
    return [f"Worse than chance here: an AUROC of {np.mean(known):.2f} for the relevant inputs.{way_out}"]


def find_method(method: str | MethodFunction, level: Level) -> Method:
    """Return a method of the table, or a user's function as a method of one level. Raises `InputError` for an unknown
    name, or a method without this level."""
    if level not in LEVELS:
        raise unknown_choice("level", str(level), LEVELS)
    if isinstance(method, str) and (known := known_method(method)):
        if level not in known.levels:
            names = [name for name, other in METHODS.items() if level in other.levels]
            raise InputError(f"method {method} has no scores of {level}: choose {', '.join(names)}")
        return known
    function: Any = import_plugin("method", method) if isinstance(method, str) else method
    name = method if isinstance(method, str) else getattr(function, "__name__", type(function).__name__)
    return Method(name, "a method of the user", {level: function})


def known_method(name: str) -> Method | None:
    """Return a method of the table, of captum or of Inseq; None for `module:function`. Raises `InputError` for an
    unknown name, or if the library is not installed."""
    if name in METHODS:
        return METHODS[name]
    if ":" not in name:
        raise unknown_choice("method", name, METHODS, other="captum:CLASS, inseq:METHOD, module:function")
    function = library_method(name)
    return function and Method(name, f"a method of {name.partition(':')[0]}", {"inputs": function})


def run_method(function: MethodFunction, trial: Trial[Any]) -> Any:
    """Return the checked scores of a trial: an array for inputs, otherwise a dictionary."""
    scores = function(trial)
    if trial.level != "heads":
        return input_scores(trial, scores) if trial.level == "inputs" else dict(scores)
    if not isinstance(scores, Mapping):
        raise InputError(f"the method returned {type(scores).__name__}: expected scores of heads by layer")
    heads = {name: as_array(values) for name, values in scores.items()}
    for layer in trial.subject.layers:
        if layer.name in heads and (shape := heads[layer.name].shape) != (layer.heads,):
            raise InputError(f"the method returned {shape} for {layer.name}: expected ({layer.heads},), its heads")
    return heads


def average(scores: Sequence[dict[Any, Any]]) -> dict[Any, Any]:
    """Return the mean of dictionaries with equal keys."""
    means = {name: np.mean([trial[name] for trial in scores], axis=0) for name in scores[0]}
    return {name: mean if isinstance(mean, np.ndarray) else float(mean) for name, mean in means.items()}


def _inputs(subject: Subject[Any], input: Any, level: Level, seed: int) -> list[Any]:
    if level == "inputs":
        if input is None or isinstance(input, int | list):
            raise InputError("input is missing: give one input, because scores of inputs are not averaged")
        return [subject.prepare(input)]
    if isinstance(input, int):
        check_range("input (a number of inputs)", input, 1, 10**5)
    if input is None or isinstance(input, int):
        return list(subject.unseen(HEAD_INPUTS if input is None else input, seed, purpose="explain"))
    return list(map(subject.prepare, input if isinstance(input, list) else [input]))


def _labels(shown: AttentionMap, trial: Trial[Any]) -> list[str]:
    """Return the names of the inputs in an attention map; empty if the map has no layer with these inputs."""
    order = sorted(shown.layers.values(), key=lambda layer: layer.kind == "decoder")
    labels = (layer.key_labels for layer in order if len(layer.key_labels) >= len(trial.embedding))
    return next((list(names[trial.own_keys(len(names))]) for names in labels), [])


# Methods of captum (Kokhlikyan et al. 2020) and Inseq (Sarti et al. 2023) as methods of a trial.
#
#     captum:IntegratedGradients               a class of `captum.attr`, for every model with an embedding
#     inseq:sequential_integrated_gradients    a method of Inseq, for language models of transformers
#
# The explained value is that of the trial. The scores of an input are absolute sums over its embedding, for gradients
# alone their norm. Inseq itself prints norms. Random draws depend on the seed of the trial.

CAPTUM = (
    "FeatureAblation",
    "GradientShap",
    "InputXGradient",
    "IntegratedGradients",
    "Occlusion",
    "Saliency",
    "ShapleyValueSampling",
)
"""Classes of `captum.attr` that need a function only. Left out are those that change activation modules (a model
that calls functions would silently get other scores), and those that need scikit-learn."""
INSEQ = (
    "gradient_shap",
    "input_x_gradient",
    "integrated_gradients",
    "occlusion",
    "saliency",
    "sequential_integrated_gradients",
)
"""Methods of Inseq that explain one token at a time and need no other package."""
INSTALL_INSEQ = "pip install 'regard[explainers,hub]' && pip install --no-deps inseq jaxtyping treescope wadler-lindig"
"""Inseq requires typeguard<=2.13.3, which it does not import, and which tyro does not accept."""
SUMS = "Scores are absolute sums over the embedding (saliency: norms); Inseq itself prints norms."
TOLERANCE = 1e-3  # Largest accepted difference between the log-probabilities of the model and of Inseq


def library_method(method: str) -> MethodFunction | None:
    """Return the function of `captum:NAME` or `inseq:NAME`, or None. Raises `InputError` if it is missing."""
    library, _, name = method.partition(":")
    if library not in ("captum", "inseq"):
        return None
    names = CAPTUM if library == "captum" else INSEQ
    if name not in names:
        raise unknown_choice(f"method of {library}", name, names)
    install = INSTALL_INSEQ if library == "inseq" else ""
    captum = import_library("captum.attr", f"method {method}", "explainers", install=install)
    if library == "captum":
        return partial(_run_captum, captum, name)
    inseq = import_library("inseq", f"method {method}", "explainers", install=install)
    return partial(_run_inseq, inseq, name)


@contextmanager
def _calling(library: str, name: str, trial: Trial[Any]) -> Iterator[None]:
    """Set the seed and compute gradients in the block, and convert errors of the library to one line."""
    cuda = [trial.embedding.device] if trial.embedding.is_cuda else []
    with (
        library_errors(library, f"{name} of {trial.subject.name} fails", "choose another method"),
        torch.enable_grad(),
        torch.backends.cudnn.flags(enabled=False),
        torch.random.fork_rng(cuda),
    ):
        torch.manual_seed(trial.seed)
        yield


def _run_captum(captum: Any, name: str, trial: Trial[Any]) -> Tensor:
    """Return the scores (S, Tk) of a class of captum; zero vectors are the baseline."""
    method, embedding = getattr(captum, name), trial.embedding
    keys, width = embedding.shape
    options = {
        "baselines": torch.zeros_like(embedding).unsqueeze(0),
        "feature_mask": torch.arange(keys, device=embedding.device).view(1, -1, 1).repeat(1, 1, width),
        "internal_batch_size": MOST_ROWS,
        "sliding_window_shapes": (1, width),
    }
    accepted = options.keys() & inspect.signature(method.attribute).parameters

    def values(embeddings: Tensor) -> Tensor:
        with change_embedding(trial.probe.embedding, embeddings.to):
            return trial.values(trial.probe.run(len(embeddings)))

    steps = torch.arange(len(trial.steps), device=embedding.device)
    with _calling("captum", name, trial):
        scores: Tensor = method(values).attribute(
            embedding.repeat(len(steps), 1, 1).requires_grad_(),
            target=steps,
            **{option: options[option] for option in accepted},
        )
    if accepted & {"feature_mask", "sliding_window_shapes"}:
        return scores[..., 0].abs().detach()  # the same score at each place of the embedding
    return _sum_over_width(scores, name)


def _sum_over_width(scores: Tensor, name: str) -> Tensor:
    joined = scores.norm(dim=-1) if name.lower() == "saliency" else scores.sum(-1).abs()
    return joined.detach()


def _run_inseq(inseq: Any, name: str, trial: Trial[Any]) -> Tensor:
    """Return the scores (S, Tk) of a method of Inseq; the baseline is the unknown token, as in Inseq. Raises
    `InputError` for models other than language models of transformers, and if Inseq computes other log-probabilities
    than the model."""
    subject: Any = trial.subject
    tokenizer, source = getattr(subject, "tokenizer", None), trial.probe.tokens
    if tokenizer is None or source is None or not getattr(subject.model, "can_generate", lambda: False)():
        raise InputError(f"{subject.name} is not a language model of transformers: choose a method of captum")
    source = source.unsqueeze(0)
    answer = trial.input.arguments.get("decoder_input_ids", source)
    before = [(settings, dict(vars(settings))) for settings in (subject.model.config, tokenizer)]
    try:
        with _calling("Inseq", name, trial):
            model = inseq.load_model(subject.model, name, tokenizer=tokenizer, device=str(source.device))
            rows = [
                _explain_step(model, source, answer[:, : step + 1], trial.classes[step], float(value))
                for step, value in zip(trial.steps, trial.clean, strict=True)
            ]
    finally:
        for settings, values in before:  # Inseq sets the token for padding
            vars(settings).update(values)
    if rows[0].dim() == 2:
        trial.remarks.append(SUMS)
    joined = [row.abs() if row.dim() == 1 else _sum_over_width(row, name) for row in rows]
    return torch.stack([pad(row.to(torch.float32), (0, source.shape[1] - len(row))) for row in joined])


def _explain_step(model: Any, source: Tensor, prefix: Tensor, target: Tensor, value: float) -> Tensor:
    """Return the scores (T,) or (T, D) of the source, or of the prefix of a decoder-only model, for the next token."""
    data = import_library("inseq.data", "a method of Inseq", "explainers", install=INSTALL_INSEQ)

    def encode(tokens: Tensor) -> Any:
        baseline = torch.full_like(tokens, model.tokenizer.unk_token_id)
        return data.BatchEncoding(tokens, torch.ones_like(tokens), tokens.tolist(), baseline)

    encoded = (encode(source), encode(prefix)) if model.is_encoder_decoder else encode(prefix)
    batch = model.formatter.prepare_inputs_for_attribution(model, encoded)
    with torch.no_grad():
        theirs = float(model.get_forward_output(batch).logits[0, -1].log_softmax(-1)[target])
    if abs(theirs - value) > TOLERANCE:
        raise InputError(
            f"Inseq computes a log-probability of {theirs:.3f}, the model {value:.3f}: choose a method of captum"
        )
    result = model.attribution_method.filtered_attribute_step(
        batch,
        target_ids=target.view(1, 1),
        attributed_fn=model.get_attributed_fn("probability"),
        attributed_fn_args={"logprob": True},
        attribution_args={},  # Inseq's default is one dictionary, which its methods change
    )
    scores: Tensor = result.source_attributions if model.is_encoder_decoder else result.target_attributions
    return scores[0].detach().to(source.device)
