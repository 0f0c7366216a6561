"""The model card of an exported run (Mitchell et al. 2019).

The card omits unknown facts: languages that were not named, and values that were not measured.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from regard.convert.exportable import Exportable
from regard.data.unknown_tokens import read_unknown
from regard.evaluation.bleu import quality
from regard.training.run_folder import RunFolder


class CardTemplate(NamedTuple):
    """Parts of a model card that depend on the target program."""

    library: str
    """Name of the program on the Hugging Face Hub."""
    use: str
    """Usage instructions in Markdown."""
    pipeline: str = "translation"
    """Name of its task on the Hub."""


def model_card(run: Exportable, card: CardTemplate, license: str) -> str:
    """Return the model card of a run in Markdown, with the YAML header for the Hub."""
    task: Any = run.config.task
    answers: str = run.task.answers
    language = answers == "tokens"
    header: dict[str, Any] = {"license": license, "library_name": card.library, "pipeline_tag": card.pipeline}
    if getattr(task, "languages", ()):
        header["language"] = list(task.languages)
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in header.items()]
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    origin = run.config.origin
    start = f", from the parameters of another run (SHA-256 {origin.weights})" if origin else ""
    return "\n".join(
        [
            *("---", *lines, "---"),
            f"# A {run.config.kind} model for {run.config.name}, {parameters:,} parameters",
            "",
            f"Trained with Regard for {run.step:,} steps{start}, on {_training_data(run)}. "
            "`certificate.json` contains the measured agreement of this folder with the run.",
            "",
            *(
                []
                if run.task.draws or language
                else ["## Data", "", *_data(task), *_unknown(run), "", "## Quality", "", _quality(run), ""]
            ),
            "## Use",
            "",
            card.use.rstrip(),
            "",
        ]
    )


def _training_data(run: Exportable) -> str:
    """Describe the training data."""
    if run.task.draws:
        return f"samples of the task {run.config.name}"
    task: Any = run.config.task
    answers: str = run.task.answers
    if answers == "tokens":
        language_task: Any = run.task
        source = "an unknown text" if task.text is None else f"the text {Path(task.text).name}"
        return f"{source}, with a vocabulary of {len(language_task.vocabulary):,} tokens ({task.tokenizer})"
    name = ",".join(Path(part).name for part in task.tokenizer.split(","))  # may be a file of the user
    case = "lowercased text" if task.lowercase else "cased text"
    return f"{case}, tokenized with a vocabulary of {len(run.task.source_vocabulary):,} tokens ({name})"


def _data(task: Any) -> list[str]:
    if task.hub is not None:
        return [f"- training: data set {task.hub}, columns {' and '.join(task.languages)}"]
    parts = {"training": task.train, "validation": task.valid, "test": task.test}
    return [f"- {name}: {', '.join(Path(file).name for file in files)}" for name, files in parts.items() if files]


def _unknown(run: Exportable) -> list[str]:
    """Return a line with the fraction of unknown tokens in each text, if the run counted unknown tokens."""
    shares = read_unknown(run.folder)
    return [f"- unknown tokens: {'; '.join(map(str, shares))}"] if shares else []


def _quality(run: Exportable) -> str:
    """Return the BLEU score measured during training."""
    task: Any = run.config.task
    measured = [line for line in RunFolder(run.folder).read_metrics() if "bleu" in line]
    if not measured and run.step and (task.valid or task.hub):
        return "Unknown: the measurements during training are lost."
    if not measured:
        return "Not measured: there was no validation text."
    lowercase = task.lowercase
    tokenizer = run.config.bleu_tokenizer or "13a"  # the default before it was stored
    signatures = quality(["a"], ["a"], lowercase=lowercase, tokenize=tokenizer).signatures
    last = next((line for line in measured if line["step"] == run.step), measured[-1])
    return (
        f"BLEU {last['bleu']:.1f} on the validation text at step {last['step']:,}, by greedy search "
        f"({signatures['bleu_lowercase' if lowercase else 'bleu']}). No test set was measured."
    )
