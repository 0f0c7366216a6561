"""Answers to the requests of the explorer's page about a subject."""

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from regard.errors import InputError, unknown_choice
from regard.external import (
    logit_attribution,
    logit_lens,
    mask_token,
    next_tokens,
    prediction_kind,
    weighted_values,
)
from regard.interpret import explain, head_importance, head_roles, head_samples
from regard.interpret.importance import importance_by_layer
from regard.server.messages import (
    AttendRequest,
    AttributionRequest,
    ExplainRequest,
    InterventionRequest,
    LensRequest,
    NextTokensRequest,
    PictureRequest,
    PlaybackRequest,
    RowRequest,
    SamplesRequest,
    TreeRequest,
)
from regard.viz import AcceptsImages, GeneratesSequences, Subject
from regard.viz.data import BesideData, RowData, WorthData
from regard.viz.maps import Map
from regard.viz.serialization import map_data, row_data


class Explorer:
    """Answers requests about a subject, one at a time.

    `beside`: other subjects whose attention is shown for comparison. `back`: title and relative URL of the page
    that links to the explorer.
    """

    def __init__(
        self,
        subject: Subject[Any],
        beside: Sequence[Subject[Any]] = (),
        *,
        back: tuple[str, str] | None = None,
    ) -> None:
        self.subject = subject
        self.beside = beside
        self.back = back
        # Copies share these containers.
        self._importance: dict[str | None, dict[str, list[WorthData]]] = {}  # by input; None for unseen inputs
        self._roles: dict[str, list[dict[str, Any]]] = {}
        self._displayed: list[str] = []  # the input displayed last
        self._long: dict[str, Any] = {}  # request (`key`) and `map` of the last answer, if its input was long
        self._progress: dict[str, list[int]] = {}

    def copy(self, check: Callable[[], None]) -> "Explorer":
        """Return an explorer with its own modules, so that its interventions do not affect this one.

        Parameters are shared, so a copy takes little memory. `check` is called before each module of the copy
        runs, and may raise an error to stop it.
        """
        model = self.subject.model
        shared = {id(tensor): tensor for tensor in itertools.chain(model.parameters(), model.buffers())}
        duplicate = Explorer(copy.deepcopy(self.subject, shared), self.beside, back=self.back)
        for name in ("_importance", "_roles", "_displayed", "_long", "_progress"):
            setattr(duplicate, name, getattr(self, name))

        def hook(module: nn.Module, args: Any) -> None:
            check()

        model = duplicate.subject.model
        for module in model.modules():
            if module is model or next(module.children(), None) is not None:  # leaves are too many and too fast
                module.register_forward_pre_hook(hook)
        return duplicate

    def about(self) -> dict[str, Any]:
        """Return the facts that the page displays about the subject."""
        writes = isinstance(self.subject, GeneratesSequences)
        predicts, mask = prediction_kind(self.subject), mask_token(self.subject)
        more = {"writes": writes, "predicts": predicts, "mask": mask, "back": self.back}
        return {**self.subject.about(), **more}

    def attend(self, request: AttendRequest) -> dict[str, Any]:
        """Answer an input: return its `map`, with interventions also the `original` map.

        Maps of the other subjects are in `beside`, and reasons for missing maps in `left_out`. Raises
        `InputError` if a value does not fit the subject.
        """
        text = self._input(request.input, request.seed)
        self._long.clear()  # frees memory before the next long input
        with self._interventions(request.interventions):
            attention = self.subject.attend(text)
        self._displayed[:] = [text]
        if any(layer.rows is not None for layer in attention.layers.values()):
            self._long.update(key=(text, tuple(request.interventions)), map=attention)
        answer: dict[str, Any] = {"map": map_data(attention)}
        beside: list[BesideData] = []
        left_out: list[str] = []
        for other in self.beside:
            try:
                beside.append({"name": other.where, "map": map_data(other.attend(text))})
            except InputError as error:
                left_out.append(f"{other.where} is not shown beside it: {error}")
        answer |= {name: items for name, items in (("beside", beside), ("left_out", left_out)) if items}
        if request.interventions:
            answer["original"] = map_data(attention.original or self.subject.attend(text))
        return answer

    def row(self, request: RowRequest) -> RowData:
        """Return the exact weights of one query of a long input.

        Raises `InputError` for an unknown layer, head or step, or if the map contains all rows already.
        """
        key = (request.input, tuple(request.interventions))
        if self._long.get("key") != key:
            self.attend(AttendRequest(request.input, request.seed, request.interventions))
        attention: Map | None = self._long.get("map")
        if attention is None:
            raise InputError("the map of this short input already contains every row: read the row from the map")
        layer = attention.layers.get(request.layer)
        if layer is None or layer.rows is None:
            raise unknown_choice("layer", request.layer, attention.layers)
        return row_data(layer.rows, request.head, request.step)

    def picture(self, request: PictureRequest) -> dict[str, str]:
        """Add an image as an input; return its name as `input`.

        Raises `InputError` if the subject does not accept images, or does not accept this image.
        """
        if not isinstance(self.subject, AcceptsImages):
            raise InputError(f"{self.subject.name} does not accept images: type an input")
        for subject in (self.subject, *self.beside):
            if isinstance(subject, AcceptsImages):
                subject.add_image(request.name, request.content)
        return {"input": request.name}

    def explain(self, request: ExplainRequest) -> dict[str, Any]:
        """Return the computation of one weight, step by step, as `Explained` in `js/explanation.js`."""
        text = self._input(request.input, request.seed)
        with self._interventions(request.interventions):
            explanation = explain(
                self.subject,
                text,
                layer=request.layer,
                head=request.head,
                output=request.output,
                key=request.key,
                temperature=request.temperature,
            )
        return explanation.json()

    def next_tokens(self, request: NextTokensRequest) -> dict[str, Any]:
        """Return the likeliest tokens at a position, as `NextTokens`; `drawn` is one drawn with `draw`."""
        text = self._input(request.input, request.seed)
        with self._interventions(request.interventions):
            tokens = next_tokens(
                self.subject,
                text,
                count=request.count,
                position=request.position,
                temperature=request.temperature,
                top_k=request.top_k,
                top_p=request.top_p,
                seed=request.draw,
            )
        return tokens.json()

    def logit_lens(self, request: LensRequest) -> dict[str, Any]:
        """Return the likeliest tokens of each block's state, as `LogitLens`."""
        text = self._input(request.input, request.seed)
        with self._interventions(request.interventions):
            return logit_lens(self.subject, text, count=request.count).json()

    def logit_attribution(self, request: AttributionRequest) -> dict[str, Any]:
        """Return what each head adds to the logit of a token, as `LogitAttribution`."""
        text = self._input(request.input, request.seed)
        with self._interventions(request.interventions):
            parts = logit_attribution(self.subject, text, token=request.token, position=request.position)
        return parts.json()

    def value_norms(self, request: AttendRequest) -> dict[str, Any]:
        """Return `norms` of values by layer, head and key, and the reasons for layers in `left_out`."""
        text = self._input(request.input, request.seed)
        with self._interventions(request.interventions):
            values = weighted_values(self.subject, text)
        return {"norms": values.norms, "left_out": values.left_out}

    def tree(self, request: TreeRequest) -> dict[str, Any]:
        """Return the search tree of an answer: `tree`, `maps` of the leaves of the tree, and `shown`, a map for
        each branch.

        Raises `InputError` if the subject does not generate sequences.
        """
        subject = self.subject
        if not isinstance(subject, GeneratesSequences):
            raise InputError(f"{subject.name} predicts all steps at once, so there is no search to show")
        text = self._input(request.input, request.seed)
        with self._interventions(request.interventions):
            tree = subject.tree(text, beam=request.beam)
            leaves = tree.leaves
            maps = [map_data(subject.attend_tokens(text, tree.path(leaf)), packed=True) for leaf in leaves]
        shown: list[int] = [0] * len(tree.branches)
        # The leaves of the answer come last, so that shared branches show their maps.
        for number, leaf in sorted(enumerate(leaves), key=lambda numbered: numbered[1] in tree.best):
            branch: int | None = leaf
            while branch is not None:
                shown[branch], branch = number, tree.branches[branch].parent
        return {"tree": tree.json(), "shown": shown, "maps": maps}

    def playback(self, request: PlaybackRequest) -> dict[str, Any]:
        """Return `{steps, losses, frames}`, with a packed map for each snapshot of training."""
        playback = self.subject.playback(self._input(request.input, request.seed))
        return {**playback.data(), "frames": [map_data(frame, packed=True) for frame in playback.frames]}

    def importance(self) -> dict[str, list[WorthData]]:
        """Return the importance of each head by layer, over unseen inputs, or over the last displayed input if
        there are none.
        """
        displayed = self._displayed[0] if self._displayed else None
        subject = self.subject.with_displayed_input(displayed)
        key = None if subject is self.subject else displayed
        if key not in self._importance:
            with self._reporting("importance") as report:
                self._importance[key] = importance_by_layer(head_importance(subject, on_progress=report))
        return self._importance[key]

    def roles(self) -> dict[str, list[dict[str, Any]]]:
        """Return the role of each head by layer."""
        if not self._roles:
            with self._reporting("roles") as report:
                self._roles.update(head_roles(self.subject, on_progress=report).by_layer())
        return self._roles

    def samples(self, request: SamplesRequest) -> dict[str, Any]:
        """Return unseen inputs with the largest weights of a head, as `HeadSamples`."""
        samples = head_samples(
            self.subject, request.layer, request.head, token=request.token, wrong_first=request.wrong_first
        )
        return samples.json()

    def progress(self) -> dict[str, list[int]]:
        """Return the progress of running computations by name: the number of finished steps, and the number of
        all steps.
        """
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
                options: dict[str, Any] = {"heads": change.heads, "to": change.to}
                stack.enter_context(
                    self.subject.intervene(change.layer, **options, query=change.query, key=change.key)
                )
            yield

    def _input(self, text: str | None, seed: int) -> str:
        if text is None:
            return self.subject.draw(seed=seed)
        self.subject.check(text)
        return text
