"""Display attention as plain data, in the terminal, and as figures, HTML pages and notebook widgets."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.viz.attention_map import (
        AttentionMap as AttentionMap,
        Maps as Maps,
        Playback as Playback,
        check_extension as check_extension,
    )
    from regard.viz.forward_pass import ForwardPass as ForwardPass
    from regard.viz.maps import (
        CROSS as CROSS,
        LayerKind as LayerKind,
        LayerMap as LayerMap,
        Map as Map,
        layer_kind as layer_kind,
        make_layer_map as make_layer_map,
    )
    from regard.viz.paper_figure import PaperFigure as PaperFigure
    from regard.viz.records import make_layer_maps as make_layer_maps, make_maps as make_maps
    from regard.viz.subject import (
        AcceptsImages as AcceptsImages,
        GeneratesSequences as GeneratesSequences,
        Layer as Layer,
        Patchable as Patchable,
        ProbeInput as ProbeInput,
        Subject as Subject,
    )
    from regard.viz.tensors import view_weights as view_weights

late(__name__)
