"""Programs on sequences, compiled to models whose answers and circuits are known.

from regard_lab import programs
compiled = programs.compile_program(programs.PROGRAMS["reverse"])
"""
