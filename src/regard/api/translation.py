"""A run on parallel text: translate with it, and test how good its translations are."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from torch import nn

from regard.api.sequences import SequenceRun
from regard.decoding import Search, translate
from regard.errors import InputError
from regard.evaluation import Quality, bleu, quality
from regard.inspection import AttentionMap
from regard.tasks import Translation, TranslationConfig
from regard.text.parallel import ParallelText, Text
from regard.text.prepare import read_pairs


@dataclass(frozen=True, kw_only=True)
class TranslationReport:
    """What a test on parallel text found."""

    translations: list[str]
    quality: Quality
    seconds: float
    """Time that translating took."""

    def __str__(self) -> str:
        found, sentences = self.quality, len(self.translations)
        return (
            f"BLEU {found.bleu:.2f}   ({found.signatures['bleu']})\n"
            f"BLEU {found.bleu_lowercase:.2f}   ({found.signatures['bleu_lowercase']})\n"
            f"chrF {found.chrf:.2f}   ({found.signatures['chrf']})\n"
            f"Exact match: {found.exact_match:.2%} of {sentences:,} sentences, translated in "
            f"{self.seconds:.1f} seconds, {sentences / self.seconds:.0f} a second"
        )


@dataclass(frozen=True)
class TranslationRun(SequenceRun):
    """A run on parallel text."""

    task: Translation
    usual_beam: ClassVar[int] = 5
    usual_length_penalty: ClassVar[float] = 1.0

    def test(
        self,
        text: Sequence[str | Path] | None = None,
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        batchsize: int = 64,
    ) -> TranslationReport:
        """Translate the sources of a text, and score them against its targets.

        `text`: a source and a target file, or one of tab-separated pairs; None: the run's test text. The rest is
        as in `search`. Raises `InputError` where there is no text, or it cannot be read.
        """
        found_text = text_of(self.task.config, "test") if text is None else ParallelText(text)
        if found_text is None:
            raise InputError(f"run {str(self.folder)!r} has no test text: give one with --data")
        pairs = read_pairs(found_text, "test")
        begin = time.perf_counter()
        found = self.translate(
            [source for source, _ in pairs], beam=beam, length_penalty=length_penalty, batchsize=batchsize
        )
        seconds = time.perf_counter() - begin
        scores = quality(found, [target for _, target in pairs], lowercase=self.task.config.lowercase)
        return TranslationReport(translations=found, quality=scores, seconds=seconds)

    def unseen(self, samples: int, seed: int) -> list[tuple[str, str]]:
        """Return the first pairs of the validation text, or else of the test text; `seed` is of no use here.

        Raises `InputError` where the run has neither.
        """
        del seed
        text = text_of(self.task.config, "valid") or text_of(self.task.config, "test")
        if text is None:
            raise InputError(f"run {str(self.folder)!r} has no text but that of its training: train with --valid")
        pairs = [pair for pair in read_pairs(text, "validation") if self.too_long(pair[0]) is None]
        return pairs[:samples]

    def attend(self, input: str, *, beam: int | None = None, length_penalty: float | None = None) -> AttentionMap:
        """Translate one sentence, and keep what each token of the translation attended to, in every layer."""
        return self.attend_to(input, beam=beam, length_penalty=length_penalty)


def text_of(
    config: TranslationConfig, part: Literal["train", "valid", "test"], *, strict: bool = False
) -> Text | None:
    """Return the text that a task is trained, validated or tested on; None where there is none."""
    if config.hub is not None:
        from regard.text.hub import HubText  # brings a large library

        split = {"train": "train", "valid": "validation", "test": "test"}[part]
        return HubText(config.hub, config.languages, split, strict=strict)
    paths = getattr(config, part)
    return ParallelText(paths, strict=strict) if paths else None


def validation(task: Translation) -> Callable[[nn.Module], dict[str, float]] | None:
    """Return what validates a model on the task's validation text, by greedy search; None without one."""
    text = text_of(task.config, "valid")
    if text is None:
        return None
    pairs = read_pairs(text, "validation")
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]

    def validate(model: nn.Module) -> dict[str, float]:
        found = translate(
            model,  # type: ignore[arg-type] # a Seq2Seq, which training knows as a module
            task.source_vocabulary,
            task.target_vocabulary,
            sources,
            Search(),
            max_len=task.longest_target,
        )
        return {"bleu": bleu([best.text for best, *_ in found], references, lowercase=task.config.lowercase)}

    return validate
