"""Choices of `regard export` and `regard translate`, in a module that imports no other program."""

from typing import Literal

Program = Literal["ctranslate2", "huggingface"]
"""Programs to export to."""
EngineName = Literal["auto", "regard", "ctranslate2"]
"""Search engines. auto: CTranslate2 if it is installed and supports the model on this CPU, otherwise Regard's own
search."""
Precision = Literal["float32", "int8"]
"""Precision of the weights in the matrix products of CTranslate2."""
