"""Validation during training, to select the best model."""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple, cast

from torch import nn

from regard.data.bleu_tokenizer import check_bleu_tokenizer, choose_bleu_tokenizer
from regard.data.parallel import PairSource
from regard.decoding.translation import Search, translate
from regard.evaluation.accuracy import measure_tokens
from regard.evaluation.bleu import quality
from regard.evaluation.scoring import score_pairs
from regard.models.base import LanguageModel, Seq2Seq
from regard.progress import print_status
from regard.streams import make_generator
from regard.tasks.base import AnyTask
from regard.tasks.batch import TokenBatch
from regard.tasks.text import Text
from regard.tasks.tokens import TokenTask
from regard.tasks.translation import Translation
from regard.training.config import Criterion, TrainingConfig, find_criterion

LARGEST_LOSS = 700.0  # Loss in nats above which the perplexity exceeds the largest number of a computer


class ValidationText(NamedTuple):
    """Pairs on which models are validated."""

    name: str  # Name in metrics; empty for the text of `--valid`
    pairs: list[tuple[str, str]]
    tokenizer: str  # sacrebleu tokenizer for BLEU


class Validation:
    """Validation that measures models on the validation texts of a task.

    For each text: BLEU and chrF of the translations of greedy search, and the mean cross-entropy of the
    references in nats per token (without label smoothing) with its exponential, the perplexity. `criterion`
    selects the best model. `texts`: the text of `--valid` first. `tokenize`: the tokenizer for BLEU. By default,
    the writing system of the references determines the tokenizer. `show`: whether to print the texts and
    tokenizers. Raises `InputError` if a text cannot be read, or if the criterion names another text.
    """

    def __init__(
        self,
        task: Translation,
        texts: Mapping[str, PairSource],
        criterion: Criterion | None = None,
        *,
        tokenize: str | None = None,
        show: bool = False,
    ) -> None:
        from regard.data.prepare import read_pairs  # imports the library of subwords, so not at the top

        self.task, self.criterion = task, criterion or find_criterion("bleu")
        self._warned = False
        self.criterion.check_text(texts)
        if tokenize is not None:
            check_bleu_tokenizer(tokenize)
        self.texts: list[ValidationText] = []
        for name, text in texts.items():
            pairs = read_pairs(text, f"validation {name}".strip())
            tokenizer = tokenize or choose_bleu_tokenizer([target for _, target in pairs])
            self.texts.append(ValidationText(name, pairs, tokenizer))
            described = f" of {name}" if name else ""
            print_status(f"Validating on {text.counts}{described}, by BLEU with tokenizer {tokenizer}", show=show)
        self.tokenizer = self.texts[0].tokenizer

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Return the figures of a model as metrics. A metric of a text with a name ends with /NAME."""
        return {
            f"{metric}/{text.name}" if text.name else metric: value
            for text in self.texts
            for metric, value in self._measure(cast(Seq2Seq, model), text).items()
        }

    def _measure(self, model: Seq2Seq, text: ValidationText) -> dict[str, float]:
        sources, references = [source for source, _ in text.pairs], [target for _, target in text.pairs]
        translations = translate(model, *self.task.vocabularies, sources, Search(), max_len=self.task.longest_target)
        answers = [best.text for best, *_ in translations]
        scores = quality(answers, references, lowercase=self.task.config.lowercase, tokenize=text.tokenizer)
        if scores.warning and not self._warned:
            self._warned = True
            print_status(f"regard: warning: {scores.warning}", show=True)
        scored = score_pairs(model, *self.task.vocabularies, text.pairs)
        loss = -math.fsum(pair.log_probability for pair in scored) / sum(pair.tokens for pair in scored)
        perplexity = math.exp(min(loss, LARGEST_LOSS))
        return {"bleu": scores.main, "chrf": scores.chrf, "valid_loss": loss, "valid_perplexity": perplexity}


def validation(
    task: AnyTask, criterion: str = "bleu", *, tokenize: str | None = None, show: bool = False
) -> Validation | None:
    """Return the validation of a task, or None if the task has no validation text.

    `criterion`: figure that selects the best model (`find_criterion`). `tokenize`: the tokenizer to use if the config
    does not name a tokenizer, for example the tokenizer of earlier validations. `show`: as in `Validation`.

    >>> from regard.tasks.counting import Counting
    >>> validation(Counting()) is None
    True
    """
    if not isinstance(task, Translation):
        return None
    if (text := task.config.text("valid")) is None:
        message = f"Without validation text, criterion {criterion} selects nothing: the last model is saved"
        print_status(message, show=show and criterion != "bleu")
        return None
    texts = {"": text, **task.config.extra_texts()}
    tokenize = task.config.bleu_tokenize or tokenize
    return Validation(task, texts, find_criterion(criterion), tokenize=tokenize, show=show)


BATCHES = 20
"""Number of validation batches, as in nanoGPT's settings for a CPU. With a validation every 500 steps, they take
about 1 % of the time of training."""


class LanguageValidation:
    """Validation that measures the loss of a model on held-out samples of a task: text or pairs that are not in
    the training data, or newly drawn samples. The samples are the same in every validation, and for every seed
    of a training run. Their lengths are those of training."""

    criterion = None

    def __init__(self, task: TokenTask, batchsize: int) -> None:
        self.task, self.batchsize = task, batchsize

    @cached_property
    def batches(self) -> list[TokenBatch]:
        """The samples, drawn in the first validation, because a text is encoded after this object is created."""
        generator = make_generator(0, "validation")
        return [self.task.sample(self.batchsize, generator, unseen=True) for _ in range(BATCHES)]

    def __call__(self, model: nn.Module) -> dict[str, float]:
        figures = measure_tokens(cast(LanguageModel, model), self.task, self.batches, relevance=False)
        return {"valid_loss": figures.loss, "valid_exact_match": figures.exact_match}


def language_validation(task: AnyTask, settings: TrainingConfig) -> LanguageValidation | None:
    """Return the validation of a language model, or None for other models, without validation, and for a text
    without a held-out part."""
    if not isinstance(task, TokenTask) or not settings.validate_every:
        return None
    if isinstance(task, Text) and not task.config.valid_share:
        return None
    return LanguageValidation(task, settings.batchsize)
