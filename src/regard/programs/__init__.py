"""Programs on sequences, compiled to models whose answers and circuits are known.

from regard import programs
compiled = programs.compile_program(programs.PROGRAMS["reverse"])
"""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.programs.circuit import Circuit
    from regard.programs.compiler import Compiled, compile_program
    from regard.programs.library import PROGRAMS
    from regard.programs.program import Family, Program
    from regard.programs.traps import TRAPS

late(__name__)

__all__ = ["PROGRAMS", "TRAPS", "Circuit", "Compiled", "Family", "Program", "compile_program"]
