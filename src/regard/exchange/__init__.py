"""Exchange: models of ours for other programs."""

from regard.exchange.export import PROGRAMS, Program, export

__all__ = ["PROGRAMS", "Program", "export"]
