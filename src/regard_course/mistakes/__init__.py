"""Known mistakes: solutions to the exercises with one incorrect step.

A mistake is a function that replaces one step of `Solution` (see the decorators `mistake` and `mistakes_in`), or
a class derived from `Solution` that replaces several steps or a number. A mistake therefore exists in every
exercise with this step. Two mistakes are combined in a class derived from both. The docstring describes the
error in the code, `instead` gives the correction, and `paper` is the line of a paper (or of the stub) that the
code contradicts. Learners read all three.
"""

from regard_course.mistakes import (
    analysis_mistakes,
    attention_mistakes,
    decoder_mistakes,
    language_mistakes,
    mask_mistakes,
    modern_mistakes,
    multi_head_mistakes,
    position_mistakes,
    product_mistakes,
    recurrent_mistakes,
    search_mistakes,
    sublayer_mistakes,
    training_mistakes,
    transformer_mistakes,
)
from regard_course.mistakes.solution import Solution

MODULES = (
    attention_mistakes,
    product_mistakes,
    mask_mistakes,
    position_mistakes,
    multi_head_mistakes,
    sublayer_mistakes,
    decoder_mistakes,
    transformer_mistakes,
    search_mistakes,
    recurrent_mistakes,
    training_mistakes,
    modern_mistakes,
    language_mistakes,
    analysis_mistakes,
)
MISTAKES: tuple[type[Solution], ...] = tuple(
    value
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, type) and value.__module__ == module.__name__
)
"""All mistakes, in the order of the exercises."""
