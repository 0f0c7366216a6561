"""Export runs to other programs, and import models of other programs as runs."""

from typing import TYPE_CHECKING, Literal

from regard.late import late

if TYPE_CHECKING:
    from regard.convert.certificate import (
        Certificate as Certificate,
        matches_certificate as matches_certificate,
        read_certificate as read_certificate,
    )
    from regard.convert.ctranslate2 import (
        get_ctranslate2_parts as get_ctranslate2_parts,
        write_ctranslate2 as write_ctranslate2,
    )
    from regard.convert.ctranslate2_search import CTranslate2Search as CTranslate2Search
    from regard.convert.engine import Engines as Engines
    from regard.convert.export import (
        PROGRAMS as PROGRAMS,
        export as export,
        write_certificate as write_certificate,
    )
    from regard.convert.import_model import import_model as import_model

late(__name__)

Program = Literal["ctranslate2", "huggingface"]
"""Programs to export to."""
EngineName = Literal["auto", "regard", "ctranslate2"]
"""Search engines. auto: CTranslate2 if it is installed and supports the model on this CPU, otherwise Regard's own
search."""
Precision = Literal["float32", "int8"]
"""Precision of the weights in the matrix products of CTranslate2."""
