"""Answer the requests of the explorer's page about a subject."""

import copy
import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from regard.activations.weights import intervene
from regard.attention.names import known_name
from regard.errors import InputError
from regard.external.logit_attribution import logit_attribution, weighted_values
from regard.external.logit_lens import logit_lens
from regard.external.next_tokens import mask_token, next_tokens, prediction_kind
from regard.interpret.explanation import explain
from regard.interpret.importance import head_importance, importance_by_layer
from regard.interpret.roles import head_roles
from regard.interpret.single_heads import head_samples
from regard.interpret.why import why
from regard.server.messages import (
    Base64,
    Beam,
    Count,
    DrawSeed,
    Flag,
    Input,
    InterventionRequest,
    LayerName,
    LayerNames,
    Limit,
    Name,
    Number,
    Part,
    Question,
    Seed,
    Step,
    Temperature,
    Texts,
)
from regard.viz.maps import Map
from regard.viz.page import (
    LEVELS,
    BesideData,
    LayerData,
    RowData,
    WorthData,
    first_data,
    layer_data,
    map_data,
    row_data,
)
from regard.viz.subject import (
    AcceptsImages,
    GeneratesSequences,
    HasSnapshots,
    LearnedSubject,
    NeedsInputs,
    ViewedSubject,
)

GENERIC = re.compile(r"model|models|checkpoint.*|snapshots?|[0-9a-f]{40}", re.IGNORECASE)
"""Names of folders that say nothing about the model in them."""


class Explorer:
    """Answers requests about a subject, one at a time.

    `beside`: other subjects whose attention maps are shown for comparison. `back`: title and relative URL of
    the page that links to the explorer.
    """

    def __init__(
        self,
        subject: ViewedSubject[Any],
        beside: Sequence[ViewedSubject[Any]] = (),
        *,
        back: tuple[str, str] | None = None,
    ) -> None:
        self.subject = subject
        self.beside = beside
        self.back = back
        # These containers are shared between copies.
        # Stored results, by the texts of a request; the key () stands for unseen inputs.
        self._importance: dict[tuple[str, ...], dict[str, list[WorthData]]] = {}
        self._roles: dict[tuple[str, ...], dict[str, list[dict[str, Any]]]] = {}
        self._displayed: list[str] = []  # the input displayed last
        self._last: dict[str, Any] = {}  # request (`key`) and `map` of the last answer
        self._progress: dict[str, list[int]] = {}

    def copy(self, check: Callable[[], None]) -> "Explorer":
        """Return an explorer with its own modules, so that its interventions do not affect this one.

        Parameters are shared, so a copy needs little memory. `check` is called before each module of the copy
        runs, and may raise an error to stop it.
        """
        model = self.subject.model
        shared = {id(tensor): tensor for tensor in itertools.chain(model.parameters(), model.buffers())}
        duplicate = copy.copy(self)
        duplicate.subject = copy.deepcopy(self.subject, shared)

        def hook(module: nn.Module, args: Any) -> None:
            check()

        model = duplicate.subject.model
        for module in model.modules():
            if module is model or next(module.children(), None) is not None:  # leaves are too many and too fast
                module.register_forward_pre_hook(hook)
        return duplicate

    def about(self) -> dict[str, Any]:
        writes = isinstance(self.subject, GeneratesSequences)
        predicts, mask = prediction_kind(self.subject), mask_token(self.subject)
        more = {"writes": writes, "predicts": predicts, "mask": mask, "back": self.back}
        about = self.subject.about()
        return {"title": _title(self.subject, about), **about, **more}

    def attend(self, question: Question) -> dict[str, Any]:
        """Answer an input: return its `map`, and the `original` map if there are interventions.

        Maps of the other subjects are in `beside`, and reasons for missing maps in `left_out`. Raises
        `InputError` if a value is invalid for the subject.
        """
        text, attention = self._attend(question)
        self._displayed[:] = [text]
        answer: dict[str, Any] = {"map": first_data(attention)}
        beside: list[BesideData] = []
        left_out: list[str] = []
        for other in self.beside:
            try:
                beside.append({"name": other.where, "map": map_data(other.attend(text), LEVELS)})
            except InputError as error:
                left_out.append(f"{other.where} is not shown for comparison: {error}")
        answer |= {name: items for name, items in (("beside", beside), ("left_out", left_out)) if items}
        if attention.original is not None:
            answer["original"] = first_data(attention.original)
        return answer

    def _attend(self, question: Question) -> tuple[str, Map]:
        """Answer an input, and cache the map for its rows and layers; return the answer and the map."""
        text = self._input(question.input, question.seed)
        self._last.clear()  # frees memory before the next long input
        with self._interventions(question.interventions):
            attention = self.subject.attend(text)
        if question.interventions and attention.original is None:
            attention = dataclasses.replace(attention, original=self.subject.attend(text))
        self._last.update(key=(text, tuple(question.interventions)), map=attention)
        return text, attention

    def _answered(self, question: Question) -> Map:
        """Return the map of the last answer if the input is the same, otherwise answer the input again."""
        text = self._input(question.input, question.seed)
        if self._last.get("key") == (text, tuple(question.interventions)):
            attention: Map = self._last["map"]
            return attention
        return self._attend(question)[1]

    def layers(self, question: Question, layers: LayerNames) -> dict[str, list[LayerData]]:
        """Return all weights of some layers: `map`, and, if there are interventions, `original`.

        Raises `InputError` for an unknown layer.
        """
        attention = self._answered(question)
        names = [known_name(name, attention.layers) for name in layers]
        maps = {"map": attention, "original": attention.original}
        return {
            part: [layer_data(shown.layers[name]) for name in names if name in shown.layers]
            for part, shown in maps.items()
            if shown is not None
        }

    def row(self, question: Question, layer: LayerName, head: Number = 0, step: Number = 0) -> RowData:
        """Return the exact weights of one query; raises `InputError` for an unknown layer, head or step."""
        layers = self._answered(question).layers
        return row_data(layers[known_name(layer, layers)], head, step)

    def picture(self, name: Name, content: Base64) -> dict[str, str]:
        """Add an image as an input; return its name as `input`.

        Raises `InputError` if the subject does not accept images, or rejects this image.
        """
        if not isinstance(self.subject, AcceptsImages):
            raise InputError(f"{self.subject.name} does not accept images: type an input")
        for subject in (self.subject, *self.beside):
            if isinstance(subject, AcceptsImages):
                subject.add_image(name, content)
        return {"input": name}

    def explain(
        self,
        question: Question,
        layer: LayerName,
        head: Number = 0,
        output: Number = 0,
        key: Step = None,
        temperature: Temperature = 1.0,
    ) -> dict[str, Any]:
        """Return the computation of one weight, step by step, as `Explained` in `js/sum.js`."""
        with self._changed(question) as text:
            options: dict[str, Any] = {"head": head, "output": output, "key": key}
            return explain(self.subject, text, layer=layer, temperature=temperature, **options).json()

    def why(
        self, question: Question, layer: LayerName, head: Number = 0, output: Number = 0, key: Step = None
    ) -> dict[str, Any]:
        """Return the parts of the score of one weight, as `Reasons` in `js/sum.js`: `Why` without its pairs."""
        with self._changed(question) as text:
            result = why(self.subject, text, layer=layer, head=head, output=output, key=key).json()
        return {name: value for name, value in result.items() if name != "pairs"}

    def next_tokens(
        self,
        question: Question,
        count: Count = 10,
        position: Step = None,
        temperature: Temperature = 1.0,
        top_k: Limit = None,
        top_p: Part = None,
        draw: DrawSeed = None,
    ) -> dict[str, Any]:
        """Return the likeliest tokens at a position, as `NextTokens`; `drawn`: one drawn with the seed `draw`."""
        options: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": draw}
        with self._changed(question) as text:
            return next_tokens(self.subject, text, count=count, position=position, **options).json()

    def logit_lens(self, question: Question, count: Count = 5) -> dict[str, Any]:
        with self._changed(question) as text:
            return logit_lens(self.subject, text, count=count).json()

    def logit_attribution(self, question: Question, token: Step = None, position: Step = None) -> dict[str, Any]:
        with self._changed(question) as text:
            return logit_attribution(self.subject, text, token=token, position=position).json()

    def value_norms(self, question: Question) -> dict[str, Any]:
        with self._changed(question) as text:
            values = weighted_values(self.subject, text)
        return {"norms": values.norms, "left_out": values.left_out}

    def tree(self, question: Question, beam: Beam = None) -> dict[str, Any]:
        """Return the search tree of an answer: `tree`, `maps` of the leaves of the tree, and `shown`, the index
        of a map for each branch.

        Raises `InputError` if the subject does not generate sequences.
        """
        subject = self.subject
        if not isinstance(subject, GeneratesSequences):
            raise InputError(f"{subject.name} predicts all steps at once, so no search can be shown")
        with self._changed(question) as text:
            tree = subject.tree(text, beam=beam)
            leaves = tree.leaves
            maps = [map_data(subject.attend_tokens(text, tree.path(leaf)), LEVELS) for leaf in leaves]
        shown: list[int] = [0] * len(tree.branches)
        # The leaves of the answer are last, so that shared branches show the maps of the answer.
        for number, leaf in sorted(enumerate(leaves), key=lambda numbered: numbered[1] in tree.best):
            for branch in tree.branches_to(leaf):
                shown[branch] = number
        return {"tree": tree.json(), "shown": shown, "maps": maps}

    def playback(self, input: Input = None, seed: Seed = 0) -> dict[str, Any]:
        text = self._input(input, seed)
        if not isinstance(self.subject, HasSnapshots):
            raise InputError(f"{self.subject.name} was not trained by Regard: there are no snapshots of its attention")
        playback = self.subject.playback(text)
        return {**vars(playback), "frames": [map_data(frame, LEVELS) for frame in playback.frames]}

    def importance(self, texts: Texts = ()) -> dict[str, list[WorthData]]:
        """Return the importance of each head by layer, over unseen inputs, or the inputs of a request. For a
        model without unseen inputs, the default is the last displayed input."""
        subject, key = self._over(texts)
        if key not in self._importance:
            with self._reporting("importance") as report:
                self._importance[key] = importance_by_layer(head_importance(subject, on_progress=report))
        return self._importance[key]

    def roles(self, texts: Texts = ()) -> dict[str, list[dict[str, Any]]]:
        """Return the role of each head by layer, over the same inputs as `importance`."""
        subject, key = self._over(texts)
        if key not in self._roles:
            with self._reporting("roles") as report:
                self._roles[key] = head_roles(subject, on_progress=report).by_layer()
        return self._roles[key]

    def _over(self, texts: Sequence[str]) -> tuple[LearnedSubject[Any], tuple[str, ...]]:
        """Return the subject with the inputs of an examination, and these inputs (empty: unseen inputs)."""
        if not isinstance(self.subject, NeedsInputs):
            return self.subject, ()
        labels = tuple(texts or ([] if self.subject.about()["draws"] else self._displayed))
        return self.subject.with_inputs(labels), labels

    def samples(
        self, layer: LayerName, head: Number = 0, token: Input = None, wrong_first: Flag = False, texts: Texts = ()
    ) -> dict[str, Any]:
        """Return the inputs with a head's largest weights, as `HeadSamples`; searches those of `importance`."""
        subject, _ = self._over(texts)
        return head_samples(subject, layer, head, token=token, wrong_first=wrong_first).json()

    def progress(self) -> dict[str, list[int]]:
        """Return the progress of running computations by name: numbers of finished and of all steps."""
        return dict(self._progress)

    @contextmanager
    def _reporting(self, name: str) -> Iterator[Callable[[int, int], None]]:
        def report(done: int, total: int) -> None:
            self._progress[name] = [done, total]

        try:
            yield report
        finally:
            self._progress.pop(name, None)

    @contextmanager
    def _interventions(self, interventions: Sequence[InterventionRequest]) -> Iterator[None]:
        """Apply interventions to the model inside a block."""
        with ExitStack() as stack:
            for change in interventions:
                known_name(change.layer.partition("#")[0], [layer.name for layer in self.subject.layers])
                options: dict[str, Any] = {"heads": change.heads, "to": change.to}
                stack.enter_context(
                    intervene(self.subject, change.layer, **options, query=change.query, key=change.key)
                )
            yield

    @contextmanager
    def _changed(self, question: Question) -> Iterator[str]:
        text = self._input(question.input, question.seed)
        with self._interventions(question.interventions):
            yield text

    def _input(self, text: str | None, seed: int) -> str:
        return self.subject.draw(seed=seed) if text is None else text


def _title(subject: ViewedSubject[Any], about: dict[str, Any]) -> str:
    """Return the name of the model; a folder that is only called "model" is named by the folder around it."""
    name = str(about["task"])
    parts = [part for part in subject.where.replace("\\", "/").split("/") if part]
    if GENERIC.fullmatch(name):
        return next((part for part in reversed(parts) if not GENERIC.fullmatch(part)), str(about["kind"]))
    return name
