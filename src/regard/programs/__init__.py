"""Programs on sequences, compiled to models whose answers and circuits are known.

from regard import programs
compiled = programs.compile_program(programs.PROGRAMS["reverse"])
"""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.programs.circuit import Circuit as Circuit
    from regard.programs.compiler import Compiled as Compiled, compile_program as compile_program
    from regard.programs.library import PROGRAMS as PROGRAMS
    from regard.programs.program import Family as Family, Program as Program
    from regard.programs.traps import TRAPS as TRAPS

late(__name__)
