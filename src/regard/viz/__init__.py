"""Display attention as plain data, in the terminal, and as figures, HTML pages and notebook widgets."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.viz.attention_map import AttentionMap, Maps, Playback, check_extension
    from regard.viz.forward_pass import ForwardPass
    from regard.viz.maps import CROSS, LayerKind, LayerMap, Map, layer_kind, make_layer_map
    from regard.viz.paper_figure import PaperFigure
    from regard.viz.records import make_layer_maps, make_maps
    from regard.viz.subject import AcceptsImages, GeneratesSequences, Layer, Patchable, ProbeInput, Subject
    from regard.viz.tensors import view_weights

late(__name__)

__all__ = [
    "CROSS",
    "AcceptsImages",
    "AttentionMap",
    "ForwardPass",
    "GeneratesSequences",
    "Layer",
    "LayerKind",
    "LayerMap",
    "Map",
    "Maps",
    "PaperFigure",
    "Patchable",
    "Playback",
    "ProbeInput",
    "Subject",
    "check_extension",
    "layer_kind",
    "make_layer_map",
    "make_layer_maps",
    "make_maps",
    "view_weights",
]
