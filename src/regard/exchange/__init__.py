"""Exchange: models of ours for other programs, and of other programs as runs."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.exchange.certificate import Certificate, is_as_certified, read_certificate
    from regard.exchange.choices import EngineName, Origin, Precision, Program
    from regard.exchange.ctranslate2 import for_ctranslate2, write_ctranslate2
    from regard.exchange.engine import Engines
    from regard.exchange.export import PROGRAMS, attest, export
    from regard.exchange.importing import ORIGINS, import_model
    from regard.exchange.searching import CTranslate2Search

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
    "attest",
    "export",
    "for_ctranslate2",
    "import_model",
    "is_as_certified",
    "read_certificate",
    "write_ctranslate2",
]
