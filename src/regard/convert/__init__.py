"""Exchange: models of ours for other programs, and of other programs as runs."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.convert.certificate import Certificate, matches_certificate, read_certificate
    from regard.convert.conversion import EngineName, Origin, Precision, Program
    from regard.convert.ctranslate2 import get_ctranslate2_parts, write_ctranslate2
    from regard.convert.ctranslate2_search import CTranslate2Search
    from regard.convert.engine import Engines
    from regard.convert.export import PROGRAMS, export, write_certificate
    from regard.convert.import_model import ORIGINS, import_model

late(__name__)

__all__ = [
    "ORIGINS",
    "PROGRAMS",
    "CTranslate2Search",
    "Certificate",
    "EngineName",
    "Engines",
    "Origin",
    "Precision",
    "Program",
    "export",
    "get_ctranslate2_parts",
    "import_model",
    "matches_certificate",
    "read_certificate",
    "write_certificate",
    "write_ctranslate2",
]
