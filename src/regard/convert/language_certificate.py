"""The certificate of a language model's conversion: both programs continue the same prompts.

Regard's greedy continuation of each prompt is compared with that of the program. Then both read prompt and
continuation, and the log-probability of each token, the logits, and the weights of every head, (B, H, T, T), are
compared.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.attention.recording import record_own
from regard.convert.certificate import Certificate, count_equal, largest, largest_size, make_certificate
from regard.convert.conversion import hide_logs
from regard.decoding.generation import generate
from regard.decoding.translation import Search
from regard.errors import InputError
from regard.progress import counting_bar, print_status
from regard.streams import make_generator
from regard.tasks.text import Text
from regard.tasks.tokens import TokenTask

PROMPTS = 20
"""Default number of prompts."""
PROMPT_TOKENS = 48
"""Number of tokens of a default prompt of text."""
NEW_TOKENS = 100
"""Number of tokens of a continuation."""
BATCH_SIZE = 5
"""Prompts per batch; the weights of all layers are in memory at once."""


class LanguageModelRun(Protocol):
    """A language model with its task."""

    @property
    def folder(self) -> Path:
        """Folder of the run."""

    @property
    def task(self) -> Any:
        """Task of the run, a `TokenTask`."""

    @property
    def model(self) -> Any:
        """The model, a `LanguageModel`."""


class ConvertedLanguageModel:
    """A language model and its tokenizer, opened by `transformers`. Token indices are those of the run."""

    program = "transformers"

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model, self._tokenizer = model, tokenizer
        model.generation_config = type(model.generation_config)(pad_token_id=0)

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        with hide_logs():  # a warning for texts longer than the model's context
            return [self._tokenizer(text).input_ids for text in texts]

    def force(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return logits (B, T, V) of tokens (B, T), and the weights (B, H, T, T) of each layer."""
        output = self._model(input_ids=tokens, output_attentions=True, use_cache=False)
        return output.logits, list(output.attentions)

    def continue_greedily(self, prompts: Sequence[Sequence[int]], new: int) -> list[list[int]]:
        """Return the `new` most likely tokens after each prompt, chosen one by one."""
        longest = max(map(len, prompts))
        padding = [longest - len(prompt) for prompt in prompts]
        tokens = torch.tensor(
            [[0] * count + list(prompt) for count, prompt in zip(padding, prompts, strict=True)]
        )
        mask = torch.arange(longest) >= torch.tensor(padding)[:, None]
        generated = self._model.generate(
            input_ids=tokens, attention_mask=mask.long(), max_new_tokens=new, max_length=None, do_sample=False
        )
        answers: list[list[int]] = generated[:, longest:].tolist()
        return answers


def make_prompts(task: TokenTask, *, progress: bool = True) -> list[str]:
    """Return texts for the comparison: unseen samples of a task, or random tokens if its text is missing.

    A sample with unknown tokens is left out, because its text is lost.
    """
    generator = make_generator(0, "certificate")
    size, count = min(PROMPT_TOKENS, task.longest), 5 * PROMPTS
    sample_len = size if isinstance(task, Text) else None
    prompts: list[str] = []
    with suppress(InputError):  # the text is missing or too short
        samples = task.sample(count, generator, sample_len=sample_len, unseen=True).inputs
        prompts = _accepted(task, samples)
    if not prompts:
        print_status("No text for the comparison: both programs read random tokens", show=progress)
        prompts = _accepted(task, torch.randint(len(task.vocabulary), (count, size), generator=generator))
    return prompts[:PROMPTS]


def _accepted(task: TokenTask, samples: Tensor) -> list[str]:
    """Return the samples (B, T) as text, without those that cannot be read again."""
    prompts = []
    for tokens in samples:
        text = task.render(tokens)
        with suppress(InputError):
            task.parse(text)
            prompts.append(text)
    return prompts


def select_prompts(task: TokenTask, texts: Sequence[str], *, progress: bool = True) -> list[str]:
    """Return the texts that the run accepts, and print how many are left out.

    Raises `InputError` if the run accepts no text.
    """
    selected, reason = [], "there are no texts"
    for text in texts:
        try:
            task.parse(text)
        except InputError as error:
            reason = str(error)
        else:
            selected.append(text)
    if not selected:
        raise InputError(f"{reason}; give other texts for the comparison with --examples")
    if skipped := len(texts) - len(selected):
        print_status(f"{skipped:,} of {len(texts):,} texts are left out: {reason}", show=progress)
    return selected


@torch.inference_mode()
def certify_language_model(
    run: LanguageModelRun,
    other: ConvertedLanguageModel,
    texts: Sequence[str],
    folder: Path,
    *,
    progress: bool = True,
) -> Certificate:
    """Compare a run with its converted model in `folder` on `texts`, and return the certificate.

    A prompt is the beginning of a text that leaves room for a continuation, of 100 tokens or half the context.
    """
    texts, parse, longest = sorted(texts, key=len), run.task.parse, run.task.longest
    limit = max(1, longest - NEW_TOKENS, longest // 2)
    new = min(NEW_TOKENS, longest - limit)
    encoded: list[list[int]] = [parse(text)[0].tolist() for text in texts]
    same_tokens = _share_equal(encoded, other.read(texts))
    prompts, continuations, theirs = [tokens[:limit] for tokens in encoded], list[list[int]](), list[list[int]]()
    differences: list[list[float]] = []
    batches = range(0, len(texts), BATCH_SIZE)
    with counting_bar(f"Comparing with {other.program}", 0, len(batches), show=progress) as advance:
        for begin in batches:
            batch = prompts[begin : begin + BATCH_SIZE]
            ours: list[list[int]] = [[] for _ in batch]
            if new:
                ours = [best.tokens for best, *_ in generate(run.model, batch, Search(), most=new)]
                theirs += other.continue_greedily(batch, new)
                continuations += ours
            differences.append(_compare(run, other, [a + b for a, b in zip(batch, ours, strict=True)]))
            advance()
    log_probabilities, logits, weights, largest_logit = map(largest, zip(*differences, strict=True))
    return make_certificate(
        run.folder,
        other.program,
        folder,
        sentences=len(texts),
        tokens=sum(map(len, prompts)) + sum(map(len, continuations)),
        continuation=new,
        same_tokens=same_tokens,
        log_probabilities=log_probabilities,
        logits=logits,
        largest_logit=largest_logit,
        weights=weights,
        same_greedy=_share_equal(continuations, theirs),
        same_beam=None,
        missing={"same_beam": "language models are compared by greedy search"},
    )


def _share_equal(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> float:
    return count_equal(ours, theirs) / max(len(ours), 1)


def _compare(run: LanguageModelRun, other: ConvertedLanguageModel, rows: Sequence[Sequence[int]]) -> list[float]:
    """Return the largest differences of log-probabilities, logits and weights on sequences.

    Sequences are padded on the right, so that no token attends to padding.
    """
    longest = max(map(len, rows))
    tokens = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    present = torch.arange(longest) < torch.tensor([len(row) for row in rows])[:, None]
    with record_own(run.model) as records:
        logits = run.model(tokens.to(next(run.model.parameters()).device)).cpu()
    their_logits, their_weights = other.force(tokens)
    assert len(records) == len(their_weights)
    chosen, their_chosen = (
        values[:, :-1].log_softmax(-1).gather(2, tokens[:, 1:, None]) for values in (logits, their_logits)
    )
    differences = [(chosen - their_chosen)[present[:, 1:]], (logits - their_logits)[present]]
    layers = zip(records.values(), their_weights, strict=True)
    weights = [(ours.weights.cpu() - theirs).transpose(1, 2)[present] for ours, theirs in layers]
    sizes = [_largest_size(differences[:1]), _largest_size(differences[1:]), _largest_size(weights)]
    return [*sizes, largest_size(logits[present])]


def _largest_size(differences: Sequence[Tensor]) -> float:
    return largest([float(values.abs().max()) for values in differences if values.numel()])
