"""Exchange: models of ours for other programs."""

from regard.exchange.certificate import Certificate, read_certificate
from regard.exchange.engine import EngineName, Engines
from regard.exchange.export import PROGRAMS, Program, export
from regard.exchange.searching import Precision

__all__ = [
    "PROGRAMS",
    "Certificate",
    "EngineName",
    "Engines",
    "Precision",
    "Program",
    "export",
    "read_certificate",
]
