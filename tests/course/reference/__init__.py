"""Correct solutions to the exercises, as plain loops over 64-bit Python numbers: slow and easy to verify.

These modules share no code with Regard, so a single error cannot affect both sides of a comparison.
"""

from tests.course.reference import analysis_loops, attention_loops, decoding_loops, language_loops, transformer_loops

MODULES = (analysis_loops, attention_loops, decoding_loops, language_loops, transformer_loops)
SOLUTIONS = {name: value for module in MODULES for name, value in vars(module).items() if callable(value)}
