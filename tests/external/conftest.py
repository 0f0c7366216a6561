"""Small transformers models, as `make models` builds them; tests are skipped without transformers."""

import copy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.language_models import word_tokenizer

BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")
WORDS = "<pad> <s> </s> <mask> <unk> the cat sat on mat a big dog ran and then he saw she was very small they it"
TEXTS = ["the cat sat on the mat", "a big dog ran and then he saw the cat", "she was very small and then they saw it"]


def built_once(build: Callable[..., Any], key: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that builds each model once, and returns copies; the random state is that after building."""
    built: dict[Any, tuple[Any, Any]] = {}

    def copied(*args: Any) -> Any:
        import torch

        if key(*args) not in built:
            built[key(*args)] = build(*args), torch.get_rng_state()
        model, state = built[key(*args)]
        torch.set_rng_state(state)
        return copy.deepcopy(model)

    return copied


@pytest.fixture(scope="session")
def small() -> Iterator[Any]:
    """The module `architectures`, with all architectures by name in `known`."""
    pytest.importorskip("transformers", reason="needs the extra peers")
    sys.path.insert(0, BENCHMARKS)
    try:
        import architectures
        from small_models import ARCHITECTURES

        architectures.known = {each.name: each for each in ARCHITECTURES}  # type: ignore[attr-defined]
        build = architectures.build
        architectures.build = built_once(build, lambda architecture, *options: (architecture.name, options))
        yield architectures
        architectures.build = build
    finally:
        sys.path.remove(BENCHMARKS)


@pytest.fixture(scope="session")
def tokenizer(small: Any) -> Any:
    """A tokenizer of whole words, for vocabularies of 60."""
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>"}
    return word_tokenizer(WORDS.split(), "<unk>", **special)


@pytest.fixture(scope="session")
def model_of(small: Any) -> Callable[[str], Any]:
    """Build a small model by name: an architecture of the table, or a variant with another output layer."""
    import torch
    import transformers

    def build(name: str) -> Any:
        kinds = {"bert-mlm": "BertForMaskedLM", "vit-classes": "ViTForImageClassification"}
        architecture = small.known[name.split("-")[0]]
        if name not in kinds:
            return small.build(architecture)
        torch.manual_seed(0)
        config = transformers.AutoConfig.for_model(architecture.name, **architecture.sizes)
        model = getattr(transformers, kinds[name])(config).eval()
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=1.2 * (parameter[0].numel()) ** -0.5)
        return model

    return built_once(build, str)


@pytest.fixture(scope="session")
def folders(
    model_of: Callable[[str], Any], tokenizer: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Save a small model and its tokenizer once, as transformers does; tests must not change the folder."""
    root, done = tmp_path_factory.mktemp("folders"), set[str]()

    def folder(name: str) -> Path:
        if name not in done:
            done.add(name)
            model_of(name).save_pretrained(root / name)
            if not name.startswith("vit"):
                tokenizer.save_pretrained(root / name)
        return root / name

    return folder
