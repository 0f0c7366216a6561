"""The model card of a run: what people on a hub read first (Mitchell et al. 2019).

What the run does not know is not written: languages where none were named, figures where none were measured.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from regard.convert.exportable import Exportable
from regard.data.unknown_tokens import read_unknown
from regard.evaluation import quality
from regard.training import RunFolder


class Card(NamedTuple):
    """What is particular of a program's model cards."""

    library: str
    """The program, as the Hugging Face Hub calls it."""
    use: str
    """How a model is used there, in Markdown."""
    licensed: bool = False
    """Whether it is to be published, and so needs a licence."""


def model_card(run: Exportable, card: Card, license: str | None) -> str:
    """Return a run's card in Markdown; with a licence also with the header that the Hugging Face Hub reads."""
    task: Any = run.config.task
    header: dict[str, Any] = {"license": license, "library_name": card.library, "pipeline_tag": "translation"}
    if getattr(task, "languages", ()):
        header["language"] = list(task.languages)
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in header.items()]
    parameters = sum(each.numel() for each in run.model.parameters())
    origin = run.config.origin
    begun = f", from the parameters of another run (SHA-256 {origin.weights})" if origin else ""
    return "\n".join(
        [
            *(["---", *lines, "---"] if license else []),
            f"# A {run.config.kind} model for {run.config.name}, {parameters:,} parameters",
            "",
            f"Trained with Regard for {run.step:,} steps{begun}, on {_about(run)}. "
            "`certificate.json` says that this folder computes what the run does.",
            "",
            *(
                []
                if run.task.draws
                else ["## Data", "", *_data(task), *_unknown(run), "", "## Quality", "", _quality(run), ""]
            ),
            "## Use",
            "",
            card.use.rstrip(),
            "",
        ]
    )


def _about(run: Exportable) -> str:
    """Say what was trained on."""
    if run.task.draws:
        return f"samples of the task {run.config.name}"
    task: Any = run.config.task
    case = "in lower case" if task.lowercase else "with its case"
    return f"text {case}, cut by a vocabulary of {len(run.task.source_vocabulary):,} tokens ({task.tokenizer})"


def _data(task: Any) -> list[str]:
    """Name the text."""
    if task.hub is not None:
        return [f"- training: data set {task.hub}, columns {' and '.join(task.languages)}"]
    parts = {"training": task.train, "validation": task.valid, "test": task.test}
    return [f"- {name}: {', '.join(Path(each).name for each in files)}" for name, files in parts.items() if files]


def _unknown(run: Exportable) -> list[str]:
    """Say how much of the text the vocabularies do not know, where that was counted."""
    found = read_unknown(run.folder)
    return [f"- unknown tokens: {'; '.join(map(str, found))}"] if found else []


def _quality(run: Exportable) -> str:
    """Say what the training measured; a test is the user's to run."""
    task: Any = run.config.task
    measured = [each for each in RunFolder(run.folder).read_metrics() if "bleu" in each]
    if not measured and run.step and (task.valid or task.hub):
        return "Not known: the measurements of the training are lost."
    if not measured:
        return "Not measured: no text for validation was given."
    lowercase = task.lowercase
    tokenizer = run.config.bleu_tokenizer or "13a"  # which it was before it was stored
    signatures = quality(["a"], ["a"], lowercase=lowercase, tokenize=tokenizer).signatures
    last = next((each for each in measured if each["step"] == run.step), measured[-1])
    return (
        f"BLEU {last['bleu']:.1f} on the validation text at step {last['step']:,}, by greedy search "
        f"({signatures['bleu_lowercase' if lowercase else 'bleu']}). No test set was measured."
    )
