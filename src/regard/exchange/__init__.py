"""Exchange: models of ours for other programs, and of other programs as runs."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.exchange.certificate import Certificate, read_certificate
    from regard.exchange.engine import EngineName, Engines
    from regard.exchange.export import PROGRAMS, Program, export
    from regard.exchange.importing import ORIGINS, Origin, import_model
    from regard.exchange.searching import Precision

late(__name__)

__all__ = [
    "ORIGINS",
    "PROGRAMS",
    "Certificate",
    "EngineName",
    "Engines",
    "Origin",
    "Precision",
    "Program",
    "export",
    "import_model",
    "read_certificate",
]
