"""Methods of Inseq equal those of Regard on transformers models; skipped without captum and Inseq."""

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import regard
from regard.errors import InputError
from tests.external.conftest import TEXTS

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(importlib.util.find_spec("captum") is None, reason="needs the extra explainers"),
]
needs_inseq = pytest.mark.skipif(importlib.util.find_spec("inseq") is None, reason="needs Inseq")
ModelOf = Callable[[str], Any]


def scores(subject: Any, method: str, **options: Any) -> np.ndarray:
    inputs = regard.attribute(subject, TEXTS[0], method=method, **options).inputs
    assert inputs is not None
    return inputs


@needs_inseq
@pytest.mark.parametrize("name", ["gpt2", "bart", "t5"])
def test_inseq_computes_the_same_scores(model_of: ModelOf, tokenizer: Any, name: str) -> None:
    model = model_of(name)
    subject = regard.look(model, tokenizer, inputs=TEXTS)
    settings = dict(vars(model.config)), dict(vars(tokenizer))
    for theirs, ours in (("saliency", "gradient"), ("input_x_gradient", "gradient_x_input")):
        expected = scores(subject, f"inseq:{theirs}", target=3)
        assert np.abs(scores(subject, ours, target=3) - expected).max() <= 1e-4 * expected.max()
    for method in ("occlusion", "sequential_integrated_gradients", "integrated_gradients", "gradient_shap"):
        assert np.isfinite(scores(subject, f"inseq:{method}", target=3)).all()
    assert "Inseq itself prints norms" in str(regard.attribute(subject, TEXTS[0], method="inseq:saliency", target=3))
    assert (dict(vars(model.config)), dict(vars(tokenizer))) == settings


@needs_inseq
def test_inseq_refuses_other_models(model_of: ModelOf, tokenizer: Any) -> None:
    subject = regard.look(model_of("bert-mlm"), tokenizer, inputs=TEXTS)
    with pytest.raises(InputError, match="is not a language model of transformers: choose a method of captum"):
        regard.attribute(subject, TEXTS[0], method="inseq:saliency")


@needs_inseq
def test_inseq_is_refused_where_it_computes_another_probability(small: Any, tokenizer: Any) -> None:
    """Inseq multiplies the embeddings of Marian by their scale, which transformers already does."""
    import transformers

    sizes = small.known["marian"].sizes | {"scale_embedding": True}
    config: Any = transformers.AutoConfig.for_model("marian", **sizes)
    subject = regard.look(transformers.MarianMTModel(config).eval(), tokenizer, inputs=TEXTS)
    with pytest.raises(InputError, match="Inseq computes a log-probability of .*: choose a method of captum"):
        regard.attribute(subject, TEXTS[0], method="inseq:saliency", target=1)
