"""Validation during training, to select the best model."""

from typing import cast

from torch import nn

from regard.data.bleu_tokenizer import check_bleu_tokenizer, choose_bleu_tokenizer
from regard.data.parallel import PairSource
from regard.decoding import Search, translate
from regard.evaluation.bleu import bleu, bleu_warning, exact_share
from regard.models import Seq2Seq
from regard.progress import print_status
from regard.tasks import AnyTask, Translation


class Validation:
    """Validation that measures the BLEU of models on the validation text of a task, with greedy search.

    `tokenize`: the tokenizer for BLEU in all validations. By default, the writing system of the text determines
    the tokenizer. `show`: whether to print the text and the tokenizer of the validation. Raises `InputError` if
    the text cannot be read.
    """

    selects = True

    def __init__(
        self, task: Translation, text: PairSource, *, tokenize: str | None = None, show: bool = False
    ) -> None:
        from regard.data.prepare import read_pairs  # imports the library of subwords, so not at the top

        pairs = read_pairs(text, "validation")
        self.task, self.warned = task, False
        self.sources, self.references = [source for source, _ in pairs], [target for _, target in pairs]
        if tokenize is not None:
            check_bleu_tokenizer(tokenize)
        self.tokenizer = tokenize or choose_bleu_tokenizer(self.references)
        print_status(f"Validating on {text.counts}, by BLEU with tokenizer {self.tokenizer}", show=show)

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Return the BLEU of a model as metrics."""
        task = self.task
        translations = translate(
            cast(Seq2Seq, model),
            task.source_vocabulary,
            task.target_vocabulary,
            self.sources,
            Search(),
            max_len=task.longest_target,
        )
        answers, lowercase = [best.text for best, *_ in translations], task.config.lowercase
        score = bleu(answers, self.references, lowercase=lowercase, tokenize=self.tokenizer)
        right = exact_share(answers, self.references, lowercase=lowercase)
        if (warning := bleu_warning(score, right, self.tokenizer)) and not self.warned:
            self.warned = True
            print_status(f"regard: warning: {warning}", show=True)
        return {"bleu": score}


def validation(task: AnyTask, *, tokenize: str | None = None, show: bool = False) -> Validation | None:
    """Return the validation of a task, or None if the task has no validation text.

    `tokenize`: the tokenizer to use if the config does not name a tokenizer, for example the tokenizer of
    earlier validations. `show`: as in `Validation`.

    >>> from regard.tasks import Counting
    >>> validation(Counting()) is None
    True
    """
    if not isinstance(task, Translation) or (text := task.config.text("valid")) is None:
        return None
    return Validation(task, text, tokenize=task.config.bleu_tokenize or tokenize, show=show)
