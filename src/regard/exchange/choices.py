"""What one may choose of who searches a run's answers."""

from typing import Literal

EngineName = Literal["auto", "regard", "ctranslate2"]
"""auto: CTranslate2 where it is installed and can run the model on this CPU, else our own search."""
Precision = Literal["float32", "int8"]
"""Of the weights while CTranslate2 multiplies."""
