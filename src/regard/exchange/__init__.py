"""Exchange: models of ours for other programs."""

from regard.exchange.certificate import Certificate, read_certificate
from regard.exchange.export import PROGRAMS, Program, export

__all__ = ["PROGRAMS", "Certificate", "Program", "export", "read_certificate"]
