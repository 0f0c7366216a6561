"""What one may choose of other programs: who is handed a model, who gives one, who searches its answers."""

from typing import Literal

Program = Literal["ctranslate2", "huggingface", "onnx"]
"""To which a model is handed."""
Origin = Literal["huggingface", "joeynmt", "fairseq"]
"""From which one comes."""
EngineName = Literal["auto", "regard", "ctranslate2"]
"""auto: CTranslate2 where it is installed and can run the model on this CPU, else our own search."""
Precision = Literal["float32", "int8"]
"""Of the weights while CTranslate2 multiplies."""
