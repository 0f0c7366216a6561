"""Correct solutions to the exercises, as plain loops over 64-bit Python numbers: slow and easy to verify.

The stub of an exercise has the signature and docstring of its function in these modules. These modules share no
code with the rest of Regard, so a single error cannot affect both sides of a comparison.
"""
