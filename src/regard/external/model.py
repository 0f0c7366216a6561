"""External models as subjects whose attention can be viewed, changed and analyzed, as for a run.

subject = regard.look("folder")                 # written by save_pretrained
subject = regard.look(model, tokenizer)         # a transformers model
subject = regard.look(module, function)         # a custom module, and a function from an input to its arguments
subject.attend("The cat sat").save("cat.html")
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.activations.capture_session import AttentionCall, AttentionInputs, CaptureSession, mask_from_bias
from regard.activations.components import Components
from regard.activations.forward_tracker import ForwardTracker
from regard.activations.modules import count_parameters, find_device, random_init
from regard.activations.weights import capture
from regard.arguments import public
from regard.attention.records import Recorder, check_indices
from regard.errors import InputError, check_range
from regard.external import adapters
from regard.external.adapters import (
    Adapter,
    Answer,
    Answered,
    CustomModel,
    Embeddings,
    PreparedInput,
    call_model,
    make_trial,
    patchable_model,
    select_row,
)
from regard.external.comparison import ModelComparison, compare_models
from regard.external.example_inputs import Examples, example_arguments, find_examples
from regard.external.head_pruning import PrunedExternalModel, prunable_layers, prune_model, remove_heads
from regard.external.layer_maps import find_layers, map_layers
from regard.external.model_components import find_external_components
from regard.external.model_input import (
    ImageProcessor,
    ModelInput,
    TextEncoder,
    as_inputs,
    find_input,
    input_name,
    label_input,
)
from regard.viz.attention_map import AttentionMap, attach_original
from regard.viz.subject import Calls, ForwardPass, Layer, Patchable, ProbeInput, ScoreCall, Traits

if TYPE_CHECKING:
    from regard.interpret.examination import Examination
    from regard.interpret.importance import HeadImportance
    from regard.interpret.roles import HeadRoles
    from regard.viz.widget import AttentionWidget


# Record the scores of external models as products of query and key in the autograd graph.
#
# Queries and keys are those that a layer passes to the attention interface of transformers, or to
# `F.scaled_dot_product_attention`: after rotary positions, norms and biases of its projections.

AGREEMENT = 1e-2
"""Largest accepted difference between the logarithms of weights and scores, up to a constant of the row."""
BIAS = "position bias"
"""Name of a bias that a model adds to its scores."""
SMALL = 1e-4
"""Weights below this are not compared: their logarithms are rounded."""


LARGEST_BATCH, MOST_TOGETHER, CHECKED = 1 << 13, 250, 6
"""Largest number of values in an argument of a forward pass, largest number of inputs that share one, and number
of inputs whose losses are compared before."""


def _argument_shapes(prepared: PreparedInput) -> tuple[Any, ...] | None:
    """Return what inputs that share a forward pass have in common; None for a batch of inputs, or other arguments."""
    arguments = prepared.arguments
    named = arguments.items() if isinstance(arguments, dict) else enumerate(arguments)
    shapes = tuple((name, value.shape if isinstance(value, Tensor) else (0,)) for name, value in named)
    return shapes if all(len(shape) > 1 and shape[0] == 1 for _, shape in shapes) else None


def token_embeddings(model: nn.Module) -> frozenset[nn.Module]:
    """Return the modules that embed tokens: those with as many rows as the input embedding."""
    getter: Any = getattr(model, "get_input_embeddings", None)
    try:
        embedding = None if getter is None else getter()
    except NotImplementedError:
        embedding = None
    if not isinstance(embedding, nn.Embedding):
        return frozenset()
    rows = embedding.num_embeddings
    modules = (module for module in model.modules() if isinstance(module, nn.Embedding))
    return frozenset(module for module in modules if module.num_embeddings == rows)


@contextmanager
def record_calls(model: nn.Module) -> Iterator[Calls]:
    session = _InputSession(ForwardTracker(model))
    with capture(session):
        yield session.calls


class _InputSession(CaptureSession):
    """A session that keeps queries, keys and values with their gradients."""

    def __init__(self, tracker: ForwardTracker) -> None:
        super().__init__(Recorder(), tracker, None)
        self.calls: dict[str, list[ScoreCall]] = {}

    def record_call(self, name: str, call: AttentionCall) -> None:
        if call.inputs is not None:
            weights, mask = call.rows(slice(None))
            made = make_call(call.inputs(), weights.detach(), mask)
            self.calls.setdefault(name.partition("#")[0], []).append(made)


def make_call(inputs: AttentionInputs, weights: Tensor, mask: Tensor | None) -> ScoreCall:
    """Return one call for one input, with the factors and additions that make its scores.

    `weights` (B, H, Tq, Tk) and `mask` are those of the call. The scores are compared with the weights.
    """
    with torch.enable_grad():
        query, key, value = inputs.query[0], inputs.key[0], inputs.value[0]
    with torch.no_grad():
        heads = len(query)
        keys = key.double().repeat_interleave(heads // len(key), 0)
        products = query.double() @ keys.transpose(-1, -2) * inputs.scale
        factors, remarks = torch.full((), inputs.scale, dtype=torch.float64), []
        scores = products
        if inputs.cap is not None:
            scores = inputs.cap * torch.tanh(products / inputs.cap)
            factors = factors * torch.where(products == 0, 1.0, scores / products)
            remarks = ["the ratio of the capped score to the score is fixed"]
        allowed = None if mask is None else mask.expand(weights.shape)[0]
        additions: dict[str, Tensor] = {}
        for bias in inputs.biases:
            values = bias[0, ..., : scores.shape[-1]].double()
            values = torch.where(mask_from_bias(bias)[0, ..., : scores.shape[-1]], values, 0.0)
            if values.any():
                additions[BIAS] = additions[BIAS] + values if BIAS in additions else values
        scores = sum(additions.values(), scores)
        refusal = "its weights are not a softmax of products of query and key, so its scores cannot be split"
        refusal = "" if _agree(weights[0].double(), scores) else refusal
    return ScoreCall(query, key, value, weights[0], scores, factors, additions, allowed, tuple(remarks), refusal)


def _agree(weights: Tensor, scores: Tensor) -> bool:
    """Return whether weights (H, Tq, Tk) are proportional to the exponentials of the scores in each row."""
    large = weights > SMALL
    difference = torch.where(large, weights.clamp(min=SMALL).log() - scores, torch.nan)
    spread = difference.nan_to_num(-torch.inf).amax(-1) - difference.nan_to_num(torch.inf).amin(-1)
    return bool((spread.nan_to_num(0.0) <= AGREEMENT).all())


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class ExternalModel:
    """A model that Regard did not build. It satisfies `regard.viz.subject.Subject`."""

    model: nn.Module
    adapter: Adapter
    """Adapter that defines the inputs, the predictions and the loss of the model."""
    name: str
    where: str
    inputs: tuple[ModelInput, ...] = ()
    """Default inputs of every analysis."""
    modules: str | None = None
    """Name pattern of modules whose inputs or outputs are weights that Regard cannot find automatically."""
    generate: int = 0
    """Largest number of generated tokens; 0: one token, or the limit of the model itself."""
    folder: Path | None = None
    """Folder of the model's files, if known; its model card may contain examples."""
    prepared: tuple[PreparedInput, ...] | None = None
    """Inputs with the answers that the model gave before pruning."""

    @property
    def traits(self) -> Traits:
        """The name of the loss, the number of inputs, how the model was given, and which analyses are missing."""
        own_answers = self.adapter.uses_own_answers(self.inputs)
        own_loss = isinstance(self.adapter, CustomModel) and self.adapter.own_loss is not None
        relevance = "The relevant inputs are unknown, so the attention on relevant inputs is not shown."
        labels = "No labels are available: head importance is measured against the unmodified model's answers."
        return Traits(
            measure="loss against its own answers" if own_answers else self.adapter.measure,
            samples=max(len(self.inputs), 1),
            origin=f"{self.adapter.summary}{' with a loss' * own_loss}",
            unanswered=(*self.adapter.unanswered, *([labels] if own_answers else []), relevance),
        )

    @property
    def tokenizer(self) -> Any:
        """Tokenizer of a text model; None for other models."""
        return None if self._texts is None else self._texts.tokenizer

    @property
    def _texts(self) -> TextEncoder | None:
        encoder = self.adapter.encoder
        return encoder if isinstance(encoder, TextEncoder) else None

    @property
    def layers(self) -> Sequence[Layer]:
        """Attention layers in the order in which they run; all calls of a layer are listed as one layer."""
        return self._layers_and_left_out[0]

    @property
    def left_out(self) -> str:
        """One line that names the unrecorded layers; empty without such layers or a known input."""
        return "" if isinstance(self.adapter, CustomModel) and not self.inputs else self._layers_and_left_out[1]

    @cached_property
    def _layers_and_left_out(self) -> tuple[Sequence[Layer], str]:
        return find_layers(self.model, self._example_arguments(), self.modules)

    def run_example(self) -> None:
        """Run the model on one of its inputs, or on an example."""
        call_model(self.model, self._example_arguments())

    def _example_arguments(self) -> Any:
        return example_arguments(self.model, self.adapter, self.inputs, self.images)

    @cached_property
    def examples(self) -> Examples:
        """Example inputs from the model card, otherwise Regard's own examples."""
        return find_examples(self.model, self.adapter, self.folder, self.check)

    @property
    def example(self) -> str | None:
        """The first example input, which a page shows first; None if no known example suits the model."""
        return next(iter(self.examples.inputs), None)

    def about(self) -> dict[str, Any]:
        """Return facts about the model that a page shows, and the first inputs of the page."""
        own = [input_name(self.inputs, number) for number in range(len(self.inputs))]
        return {
            "task": self.name,
            "summary": "; ".join(filter(None, (self.adapter.summary, self.left_out))),
            "kind": type(self.model).__name__,
            "step": None,
            "draws": bool(own),
            "snapshots": False,
            "accepts": self.adapter.accepts if self.images is None else "an image, PNG or JPEG",
            "pictures": self.images is not None,
            "texts": own or list(self.examples.inputs),
            "origin_of_texts": "" if own else self.examples.origin,
            "examined": {},
        }

    def __str__(self) -> str:
        kind = type(self.model).__name__
        return f"{self.name}: {kind}, {count_parameters(self.model):,} parameters, {self.adapter.summary}"

    def __repr__(self) -> str:
        return f"<ExternalModel: {self}>"

    @property
    def removable(self) -> Mapping[str, Sequence[Sequence[int]]]:
        """By layer: groups of heads that can be removed; a group is removed as a whole."""
        return {name: layer.head_groups for name, layer in prunable_layers(self.model, self.layers).items()}

    def keep_heads(self, layer: str, heads: Sequence[int]) -> None:
        """Remove all other heads of a layer permanently."""
        for known in self.layers:
            check_indices("head", heads if known.name == layer else (), known.heads)
        run = partial(adapters.call_model, self.model, self._example_arguments())
        with torch.no_grad():
            remove_heads(self.model, self.layers, layer, heads, lambda: adapters.find_states(run()))
        for name in ("_layers_and_left_out", "components"):
            self.__dict__.pop(name, None)

    def with_inputs(self, labels: Sequence[str]) -> ExternalModel:
        """Return the same subject with the inputs of some labels; raises `InputError` for a rejected input."""
        for label in labels:
            self.check(label)
        return self.over([find_input(self.inputs, label) for label in labels]) if labels else self

    def over(self, inputs: str | Iterable[Any]) -> ExternalModel:
        """Return the same subject with other inputs: texts, pairs of source and target, or images."""
        if not (model_inputs := as_inputs(inputs)):
            raise InputError("inputs is empty: give one or more texts")
        return dataclasses.replace(self, inputs=model_inputs)

    def called(self, classes: Sequence[int]) -> list[str]:
        """Return the names of some output classes."""
        return self.adapter.names(self.model, classes)

    def draw(self, *, seed: int = 0) -> str:
        """Return one of the inputs, or its label if it is not a text; raises `InputError` without inputs."""
        if not self.inputs:
            action = "choose" if self.images else "type"
            raise InputError(f"{self.name} has no inputs to draw from: {action} an input")
        return input_name(self.inputs, seed % len(self.inputs))

    @property
    def images(self) -> ImageProcessor | None:
        """Image processor of a vision model; None for other models."""
        encoder = self.adapter.encoder
        return encoder if isinstance(encoder, ImageProcessor) else None

    def add_image(self, name: str, content: bytes) -> None:
        """Add a PNG or JPEG image as an input under a name; raises `InputError` if the image cannot be read."""
        if self.images is None:
            raise InputError(f"{self.name} does not accept images: type {self.adapter.accepts}")
        self.images.put(name, content)

    def check(self, input: str) -> None:
        """Raise `InputError` for an input that the model does not accept, or an image that was not uploaded."""
        model_input = find_input(self.inputs, input)
        if self.images is not None:
            self.images.check_name(model_input)
        if self._texts is not None:
            self._texts.tensors(self.model, model_input.value)

    @torch.no_grad()
    def attend(
        self, input: Any = None, *, target: str | None = None, generate: int | None = None, seed: int = 0
    ) -> AttentionMap:
        """Return the attention of every layer for an input, or for an input drawn with `seed`.

        `target`: the output to use, with the input as its source. `generate`: largest number of generated tokens.
        During an intervention, `original` is the map without it. Raises `InputError` for a rejected input.
        """
        model_input = find_input(self.inputs, self.draw(seed=seed) if input is None else input, target)
        count = self.generate if generate is None else generate
        check_range("generate", count, 0, adapters.MAX_GENERATED)
        if count and not self.adapter.generates:
            raise InputError(f"{self.name} is {self.adapter.summary}, which generates no text: leave out generate")
        answer = partial(self.adapter.answer, self.model, model_input, count)
        return attach_original(self.model, self.where, lambda: self._map(answer()))

    def _map(self, answer: Answer) -> AttentionMap:
        prepared = answer.prepared
        return AttentionMap(
            task=self.name,
            input=label_input(self.inputs, prepared.input),
            prediction=answer.prediction,
            truth=answer.truth,
            layers=map_layers(self.model, self.adapter, prepared, self.tokenizer, self.modules),
            outputs=list(answer.outputs),
            probabilities=list(answer.probabilities),
            pixels=None if self.images is None else self.images.colours(prepared.arguments),
        )

    def forward_pass(self, input: str) -> ForwardPass:
        """Return the forward pass whose attention `attend` shows."""
        answer = self.adapter.answer(self.model, find_input(self.inputs, input), self.generate)
        return ForwardPass(
            run=partial(call_model, self.model, answer.prepared.arguments),
            record=partial(record_calls, self.model),
            embeddings=token_embeddings(self.model),
        )

    @torch.no_grad()
    def unseen(self, samples: int, seed: int, *, purpose: str = "examine") -> Sequence[Any]:
        """Return at most `samples` inputs with their expected answers; raises `InputError` without inputs."""
        if not self.inputs:
            raise InputError(f"{self.name} has no inputs: give texts (--examples FILE)")
        inputs = self.prepared or [self.adapter.prepare(self.model, text) for text in self.inputs[:samples]]
        if not self._rows:
            self._check_batches(inputs)
        return inputs

    @torch.no_grad()
    def look(self, input: PreparedInput) -> AttentionMap:
        """Return the attention map of one prepared input, with its target if the input has a target."""
        return self._map(Answer(input))

    def untrained(self, seed: int) -> ExternalModel:
        """Return the subject with initial parameters, or with shuffled ones if its class cannot draw them."""
        return dataclasses.replace(self, model=random_init(self.model, seed).to(find_device(self.model)).eval())

    @torch.no_grad()
    def loss(self, inputs: Sequence[PreparedInput]) -> float:
        """Return the mean loss over all outputs of some inputs, in nats or in the unit of `measure`."""
        total, count = self.losses(inputs).sum(0)
        return float(total / max(count, 1))

    @torch.no_grad()
    def losses(self, inputs: Sequence[PreparedInput]) -> np.ndarray:
        """Return (N, 2): for each input, the sum of the loss over its outputs, and the number of outputs."""
        return np.concatenate([np.zeros((0, 2)), *map(self._losses, self._batches(inputs))])

    def _batches(self, inputs: Sequence[PreparedInput]) -> Iterator[Sequence[PreparedInput]]:
        """Split inputs into neighbours that share a forward pass."""
        rows = self._rows.get("rows", 1)
        for _, group in itertools.groupby(inputs, lambda prepared: _argument_shapes(prepared) if rows > 1 else None):
            members = list(group)
            yield from (members[start : start + rows] for start in range(0, len(members), rows))

    def _losses(self, inputs: Sequence[PreparedInput]) -> np.ndarray:
        """Return the losses (N, 2) of inputs in one forward pass; raises `InputError` if the loss needs others."""
        if len(inputs) == 1:
            return np.array([self.adapter.loss(self.model, inputs[0])], dtype=np.float64)
        rows: Any = [prepared.arguments for prepared in inputs]
        names = rows[0] if isinstance(rows[0], dict) else range(len(rows[0]))
        batch: dict[Any, Tensor] = {name: torch.cat([row[name] for row in rows]) for name in names}
        try:
            output = call_model(self.model, batch if names is rows[0] else tuple(batch.values()))
        except InputError:  # an intervention may not tell inputs from heads in a batch of as many inputs as heads
            return np.concatenate([self._losses([prepared]) for prepared in inputs])
        answered = [Answered(self.model, select_row(output, row, len(inputs))) for row in range(len(inputs))]
        pairs = zip(answered, inputs, strict=True)
        losses = np.array([self.adapter.loss(model, prepared) for model, prepared in pairs])  # type: ignore[arg-type]
        if any(model.calls != 1 for model in answered):
            raise InputError("the loss does not call the model once")
        return losses

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {}

    @torch.no_grad()
    def _check_batches(self, inputs: Sequence[PreparedInput]) -> None:
        """Let inputs share forward passes if the first ones have the same losses together as alone."""
        groups: dict[Any, list[PreparedInput]] = {}
        for prepared in inputs:
            groups.setdefault(_argument_shapes(prepared), []).append(prepared)
        shapes, group = max(groups.items(), key=lambda item: len(item[1]))
        size = max((math.prod(shape) for _, shape in shapes or ()), default=0)
        rows, compared = min(LARGEST_BATCH // max(size, 1), len(group), MOST_TOGETHER), group[:CHECKED]
        self._rows["rows"] = 1
        if rows < 2 or shapes is None:
            return
        try:
            together = self._losses(compared)
        except Exception:  # any code of a user may refuse a batch
            return
        if np.allclose(together, self.losses(compared), rtol=1e-3, atol=1e-4):
            self._rows["rows"] = rows

    @cached_property
    def components(self) -> Components:
        """Heads and feed-forward layers of the model, for explanation methods."""
        known = sorted(self.inputs, key=lambda known: -len(str(known.value)))  # queries need several keys
        arguments = example_arguments(self.model, self.adapter, known, self.images)
        if isinstance(arguments, dict) and "decoder_input_ids" in arguments:
            # An answer may have too few different tokens to tell the keys of a head from its queries.
            arguments = {**arguments, "decoder_input_ids": arguments[adapters.TOKENS]}
        return find_external_components(self, partial(adapters.call_model, self.model, arguments))

    @property
    def patchable(self) -> Patchable:
        """Forward passes on one input, for patching."""
        return patchable_model(self.model, self.adapter, self.inputs)

    @torch.no_grad()
    def prepare(self, input: Any) -> Any:
        """Return an input with its expected answer, or with the model's own answer."""
        return adapters.prepare_once(self.model, self.adapter, self.inputs, input)

    @cached_property
    def _embeddings(self) -> Embeddings:
        return {}

    def trial(self, input: PreparedInput) -> ProbeInput:
        """Return an input that accepts a changed embedding; raises `InputError` for a model without one."""
        return make_trial(self.model, self.adapter, self.layers, input, self._embeddings)

    def importance(self, texts: str | Iterable[Any] | None = None) -> HeadImportance:
        """Return the increase of the loss when each head is disabled, over some inputs (None: its own).

        `traits.measure` names the loss. Raises `InputError` without inputs.
        """
        from regard.interpret.importance import head_importance

        subject = self if texts is None else self.over(texts)
        return head_importance(subject)

    def examine(self, texts: str | Iterable[Any] | None = None, *, seed: int = 0) -> Examination:
        """Test whether attention explains the answers to two or more inputs (None: the subject's inputs).

        `unanswered` of the result lists what cannot be tested. Raises `InputError` without inputs.
        """
        from regard.interpret.examination import examine

        subject = self if texts is None else self.over(texts)
        examination = examine(subject, samples=max(len(subject.inputs), 2), seed=seed)
        over = "inputs" if isinstance(self.adapter, CustomModel) else "images" if self.images else "texts"
        return dataclasses.replace(examination, over=over)

    def roles(self, texts: str | Iterable[Any] | None = None, *, seed: int = 0) -> HeadRoles:
        """Describe the role of each head over at least ten inputs (None: the subject's inputs)."""
        from regard.interpret.roles import head_roles

        subject = self if texts is None else self.over(texts)
        return head_roles(subject, samples=max(len(subject.inputs), 10), seed=seed)

    def prune(
        self, heads: int, output: str | Path, *, texts: str | Iterable[Any] | None = None, overwrite: bool = False
    ) -> PrunedExternalModel:
        """Remove the `heads` least important heads from a copy, and save it in a folder for transformers.

        `texts`: inputs for head importance (None: its own). Heads that share keys count as one head. The folder
        contains code (`trust_remote_code`) if the config cannot describe the number of heads of each layer.
        Raises `InputError` for too many heads or an existing folder.
        """
        subject = self if texts is None else self.over(texts)
        samples = subject.traits.samples
        return prune_model(subject, heads, Path(output), samples=samples, overwrite=overwrite)

    def compare_with(self, other: ExternalModel, texts: str | Iterable[Any]) -> ModelComparison:
        """Compare two models over the same inputs; raises `InputError` if their losses are not comparable."""
        return compare_models(self, other, texts)

    def view(self, input: Any = None, **options: Any) -> AttentionWidget:
        """Return a notebook widget for an input; `options` as in `attend`."""
        return self.attend(input, **options).view()
