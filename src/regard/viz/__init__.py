"""Inspection: attention to see, as plain data and in the terminal, as a picture, a page or a widget."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.viz.attention_map import AttentionMap
    from regard.viz.endings import check_ending
    from regard.viz.maps import CROSS, LayerKind, LayerMap, Map, kind_of, layer_map
    from regard.viz.playback import Playback
    from regard.viz.records import Maps, layers_of_records, maps_of
    from regard.viz.subject import Layer, Sees, Subject, Trial, Writes
    from regard.viz.tensors import view_of

late(__name__)

__all__ = [
    "CROSS",
    "AttentionMap",
    "Layer",
    "LayerKind",
    "LayerMap",
    "Map",
    "Maps",
    "Playback",
    "Sees",
    "Subject",
    "Trial",
    "Writes",
    "check_ending",
    "kind_of",
    "layer_map",
    "layers_of_records",
    "maps_of",
    "view_of",
]
