"""Methods of captum (Kokhlikyan et al. 2020) and Inseq (Sarti et al. 2023) as methods of a trial.

    captum:IntegratedGradients               a class of `captum.attr`, for every model with an embedding
    inseq:sequential_integrated_gradients    a method of Inseq, for language models of transformers

The explained value is that of the trial. The scores of an input are absolute sums over its embedding, for
gradients alone their norm. Inseq itself prints norms. Random draws depend on the seed of the trial.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.errors import InputError, unknown_choice
from regard.interpret.attribution.trial import MOST_ROWS, MethodFunction, Trial, change_embedding
from regard.libraries import import_library, library_errors

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
    """Return the function of `captum:NAME` or `inseq:NAME`, or None for another form. Raises `InputError` for an
    unknown name, or without the library."""
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
