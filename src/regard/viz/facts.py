"""What a picture of attention says of itself, in its caption and in the metadata of its file."""

from collections.abc import Sequence

from regard.viz.maps import LayerMap, Map

WORD = "␣"
"""Begins the name of a word's first piece as it is shown; in the data it is `▁`, which looks like a bar."""


def shown_label(label: str) -> str:
    """Return a label as it is shown: the sign that a word begins is one that can be read."""
    return label.replace("▁", WORD)


def spelled(answer: list[int] | str | None) -> str:
    """Return an answer as a text."""
    if answer is None:
        return "unknown"
    return repr(answer) if isinstance(answer, str) else " ".join(map(str, answer))


def changed_lines(attention: Map) -> list[str]:
    """Return what was done to the model, and what it answers without that; nothing where nothing was done."""
    if not attention.interventions:
        return []
    lines = [f"Changed: {'; '.join(attention.interventions)}"]
    if attention.original is not None:
        lines.append(f"Prediction without the change: {spelled(attention.original.prediction)}")
    return lines


def facts_of(attention: Map, layers: Sequence[LayerMap], scale: str) -> dict[str, str]:
    """Return all facts of a picture of some layers, by name; `scale`: what its colours mean."""
    heads = {layer.name: ", ".join(map(layer.called, range(len(layer.weights)))) for layer in layers}
    facts = {
        "model": attention.model or attention.task,
        "input": attention.input,
        "layers": "; ".join(f"{name} ({each})" for name, each in heads.items()),
        "interventions": "; ".join(attention.interventions) or "none",
        "scale": scale,
    }
    if attention.prediction is not None:
        facts["prediction"] = spelled(attention.prediction)
    if attention.original is not None:
        facts["prediction without interventions"] = spelled(attention.original.prediction)
    if attention.truth is not None:
        facts["truth"] = spelled(attention.truth)
    if attention.note:
        facts["note"] = attention.note
    return facts
