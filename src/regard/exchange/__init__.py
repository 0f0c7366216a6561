"""Exchange: models of ours for other programs, and of other programs as runs."""

from regard.exchange.certificate import Certificate, read_certificate
from regard.exchange.export import PROGRAMS, Program, export
from regard.exchange.importing import ORIGINS, Origin, import_model

__all__ = [
    "ORIGINS",
    "PROGRAMS",
    "Certificate",
    "Origin",
    "Program",
    "export",
    "import_model",
    "read_certificate",
]
