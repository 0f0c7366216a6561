"""Right answers to the exercises, as plain loops over Python numbers in 64 bits: slow and easy to verify.

The stub of an exercise is made from the signature and docstring of its function here.
These modules share no code with the rest of Regard, so one error cannot affect both sides of a comparison.
"""
