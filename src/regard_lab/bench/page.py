"""The bench as a page, whose failures link to the attention of an input, and as Markdown tables."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

import numpy as np

from regard.arguments import public
from regard.io import make_folder, write_file
from regard.viz.attention_map import AttentionMap
from regard.viz.maps import LayerMap
from regard.viz.page import write_page
from regard.viz.report_page import Part, Plot, render_page
from regard_lab.bench.bench import CAPTION, BenchResult, Column, detail_tables, group_tables
from regard_lab.bench.known_models import KnownModelChoice
from regard_lab.bench.rankings import RANDOM, Subjects, draw_inputs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Attention maps of failures: an input on which a method ranks badly, with its ranking beside the truth.

EXPLANATION = "explanation"  # Name of the layer of a map that shows a ranking of inputs beside the truth


Place = tuple[str, str, str, str, str]  # Kind and name of a model, method, level and truth


class Failure(NamedTuple):
    """A method that fails on a model, with the ranking of its worst sample."""

    place: Place
    seed: int
    mean: float
    worst: Mapping[str, Any]


def place_of(column: Column, method: str) -> Place:
    return column.kind, column.name, method, column.level, column.truth


def write_failures(result: BenchResult, folder: Path) -> dict[Place, str]:
    """Write one page of attention maps for each model with failures. Return the address of each failure below the
    folder of `folder`. The random ranking is no failure."""
    means = {
        place_of(column, method): entry.mean
        for column in result.columns
        for method, entry in column.entries.items()
        if entry.fails and method != RANDOM
    }
    failures: dict[Place, Failure] = {}
    for cell in result.cells:
        for score in cell.scores:
            place = (cell.kind, cell.model, cell.method, score.level, score.truth)
            known = failures.get(place)
            worse = score.worst is not None and (known is None or score.worst["auroc"] < known.worst["auroc"])
            if place in means and score.worst is not None and worse:
                failures[place] = Failure(place, cell.seed, means[place], score.worst)
    addresses: dict[Place, str] = {}
    subjects: dict[tuple[str, str, int], Subjects] = {}
    pages: dict[tuple[str, str], list[AttentionMap]] = {}
    for (kind, model, *_), failure in failures.items():
        if (kind, model, failure.seed) not in subjects:
            built = KnownModelChoice(model, kind).build(failure.seed, result.folder)  # type: ignore[arg-type]
            subjects[kind, model, failure.seed] = draw_inputs(built, result.samples)
        maps = pages.setdefault((kind, model), [])
        attention, opened = _draw_failure(subjects[kind, model, failure.seed], failure)
        state = urlencode({"map": len(maps), **opened})
        addresses[failure.place] = f"{folder.name}/{kind}-{model}.html#{state}"
        maps.append(attention)
    for (kind, model), maps in pages.items():
        write_page(folder / f"{kind}-{model}.html", maps)
    return addresses


def _draw_failure(subjects: Subjects, failure: Failure) -> tuple[AttentionMap, dict[str, Any]]:
    """Return the attention map of a failure, and the layer and head that the page opens."""
    worst, (_, _, method, level, _) = failure.worst, failure.place
    attention = subjects.known.subject.look(subjects.inputs[worst.get("sample", 0)])
    note = (
        f"{method} ranks {level} with AUROC {worst['auroc']:.2f} here (seed {failure.seed}), "
        f"{failure.mean:.2f} on average"
    )
    if level == "inputs":
        layers = {EXPLANATION: _input_layer(attention, failure.worst, method), **attention.layers}
        return _noted(attention, note, layers), {"layer": EXPLANATION, "head": 0}
    if level == "heads":
        return _draw_heads(subjects, attention, failure, note)
    high, low = (", ".join(f"{sender} to {receiver}" for sender, receiver, _ in worst[end]) for end in ("high", "low"))
    note += f". Ranked high, but not in the circuit: {high}. Ranked low, but in the circuit: {low}"
    return _noted(attention, note, attention.layers), {}


def _input_layer(attention: AttentionMap, worst: Mapping[str, Any], method: str) -> LayerMap:
    """Return a layer with two heads: the ranking of the method, and the truth; rows sum to 1."""
    scores, truth = np.array(worst["scores"], dtype=np.float64), np.array(worst["truth"], dtype=bool)
    queries, keys = (
        [f"output {step}" for step in range(len(truth))],
        [f"input {step}" for step in range(truth.shape[1])],
    )
    for layer in attention.layers.values():
        if len(layer.query_labels) == len(truth) and len(layer.key_labels) >= truth.shape[1]:
            queries, keys = list(layer.query_labels), list(layer.key_labels[: truth.shape[1]])
    return LayerMap(
        name=EXPLANATION,
        title=f"Ranks by {method}, beside the known answer",
        weights=np.stack([_rank_weights(scores), _rank_weights(truth)]).astype(np.float32),
        query_labels=queries,
        key_labels=keys,
        relevant=truth,
        kind_override="cross",
        head_names=(f"{method.replace('_', ' ')} (ranks)", "known answer"),  # a long name needs spaces
    )


def _rank_weights(scores: np.ndarray) -> np.ndarray:
    """Return weights (Tq, Tk) in proportion to the number of smaller scores; each row sums to 1."""
    smaller = (scores[:, None, :] < scores[:, :, None]).sum(2)
    weights: np.ndarray = smaller / np.maximum(smaller.sum(1, keepdims=True), 1)
    return weights


def _draw_heads(
    subjects: Subjects, attention: AttentionMap, failure: Failure, note: str
) -> tuple[AttentionMap, dict[str, Any]]:
    """Name each head by its score, its rank and whether it belongs to the known answer."""
    circuit = subjects.known.circuit
    assert circuit is not None, "only models with a circuit have known heads"
    kind = failure.place[-1].split(", ")[0]
    truth: Mapping[str, Sequence[bool | None]] = getattr(circuit, kind)
    scores = {
        (layer, head): value for layer, values in failure.worst["scores"].items() for head, value in enumerate(values)
    }
    ranked = sorted(scores, key=lambda place: -scores[place])
    layers = {}
    for name, layer in attention.layers.items():
        names = []
        for head in range(len(layer.weights)):
            known = truth.get(name, ())[head : head + 1]
            answer = "unknown" if not known or known[0] is None else kind if known[0] else f"not {kind}"
            place = (name, head)
            rank = f"rank {ranked.index(place) + 1}" if place in scores else "not ranked"
            names.append(f"head {head} ({rank}, {answer})")
        layers[name] = dataclasses.replace(layer, head_names=tuple(names))
    misplaced = next(
        ((layer, head) for layer, head in ranked if layer in layers and truth.get(layer, ())[head] is False), None
    )
    state = {} if misplaced is None else {"layer": misplaced[0], "head": misplaced[1]}
    return _noted(attention, note, layers), state


def _noted(attention: AttentionMap, note: str, layers: dict[str, LayerMap]) -> AttentionMap:
    notes = "; ".join(filter(None, (note, attention.note)))
    return dataclasses.replace(attention, note=notes, layers=layers, sums=None)


WIDTH = 12  # Number of models beside each other in a table of the page
FAILURES = (
    "A failure links to the attention map of the input that the method ranks worst, beside the known answer. A "
    "mean links to the model with the lowest score."
)
LIMITS = (
    "These models are small, and their circuits are known because they were planted or because the task defines "
    "the relevant inputs. An input of a program counts as relevant if another token there changes the answer, so "
    "methods that replace tokens measure nearly the same. A method that is right here need not be right on a "
    "large language model; a method that is wrong here should not be trusted there."
)


@public
def write_bench_page(result: BenchResult, path: str | Path) -> Path:
    """Write a page with all tables, and the pages of the failures to a folder beside it. Return the path of the page.

    Raises `MachineError` if a file cannot be written.
    """
    path = Path(path)
    folder = path.with_name(f"{path.stem}-failures")
    make_folder(folder)
    addresses = write_failures(result, folder)

    def link(column: Column, method: str) -> str | None:
        if column.family != "all":
            return addresses.get(place_of(column, method))
        # The page of the model of a group on which the method has the lowest score
        members = [
            member
            for member in result.columns
            if (member.kind, member.level) == (column.kind, column.level)
            and method in member.entries
            and column.truth in member.truth.split(", ")
        ]
        return addresses.get(place_of(min(members, key=lambda member: member.entries[method].mean), method))

    parts: list[Part] = [
        Plot(lambda width: _draw_groups(result, width), "Mean AUROC: rows are methods, columns groups of models"),
        f"{result.summary()}. {CAPTION}",
        FAILURES,
        *group_tables(result.groups, result.methods, WIDTH, link),
        *detail_tables(result.columns, result.methods, WIDTH, link),
        *result.notes,
        LIMITS,
    ]
    write_file(path, render_page("Explanation methods on models whose answer is known", parts).encode())
    return path


def _draw_groups(result: BenchResult, width: float) -> "Figure":
    """Draw the mean AUROC of each method (row) over each group of models (column): blue above chance, red below."""
    from regard.viz.figure import new_figure  # matplotlib is slow to import
    from regard.viz.plots import better_colours, letter_colour

    entries = [[column.entries.get(method) for column in result.groups] for method in result.methods]
    values = [[0.5 if entry is None else entry.mean for entry in row] for row in entries]
    figure = new_figure(max(2.2 + 0.55 * len(result.groups), width), 2.4 + 0.26 * len(values))
    axes = figure.subplots()
    axes.imshow(values, cmap=better_colours(), vmin=0, vmax=1, aspect="auto")
    for row, line in enumerate(entries):
        for column, entry in enumerate(line):
            text = "-" if entry is None else f"{entry.mean:.2f}"
            colour = letter_colour(2 * values[row][column] - 1)
            axes.text(column, row, text, ha="center", va="center", color=colour)
    names = [f"{column.kind}, {column.level}: {column.truth}" for column in result.groups]
    axes.set_xticks(range(len(names)), names, rotation=40, ha="left")
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(values)), result.methods)
    axes.tick_params(length=0)
    axes.set_xlabel("mean AUROC; blue: 1, a perfect ranking; no color: 0.50, chance; red: 0")
    return figure
