"""The model card of a run: what people on a hub read first (Mitchell et al. 2019).

What the run does not know is not written: languages where none were named, figures where none were measured.
"""

import json
from pathlib import Path
from typing import Any

from regard.evaluation import quality
from regard.exchange.exportable import Exportable
from regard.training import RunFolder

USE = """\
```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForSeq2SeqLM.from_pretrained("FOLDER")
found = model.generate(**tokenizer(["..."], return_tensors="pt"), num_beams=5)
tokenizer.batch_decode(found, skip_special_tokens=True)
```"""


def model_card(run: Exportable, license: str) -> str:
    """Return a run's card in Markdown, with the header that the Hugging Face Hub reads."""
    task: Any = run.config.task
    header: dict[str, Any] = {"license": license, "library_name": "transformers", "pipeline_tag": "translation"}
    if task.languages:
        header["language"] = list(task.languages)
    lines = [
        "---",
        *(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in header.items()),
        "---",
    ]
    parts = {"training": task.train, "validation": task.valid, "test": task.test}
    data = [f"- {name}: {', '.join(Path(each).name for each in files)}" for name, files in parts.items() if files]
    if task.hub is not None:
        data = [f"- training: data set {task.hub}, columns {' and '.join(task.languages)}"]
    case = "in lower case" if task.lowercase else "with its case"
    parameters = sum(each.numel() for each in run.model.parameters())
    origin = run.config.origin
    begun = f", from the parameters of another run (SHA-256 {origin.weights})" if origin else ""
    return "\n".join(
        [
            *lines,
            f"# A Transformer for translation, {parameters:,} parameters",
            "",
            f"Trained with Regard for {run.step:,} steps{begun}, on text {case}, cut by a vocabulary of "
            f"{len(run.task.source_vocabulary):,} tokens ({task.tokenizer}). "
            "`certificate.json` says that this folder computes what the run does.",
            "",
            "## Data",
            "",
            *data,
            "",
            "## Quality",
            "",
            _quality(run),
            "",
            "## Use",
            "",
            USE,
            "",
        ]
    )


def _quality(run: Exportable) -> str:
    """Say what the training measured; a test is the user's to run."""
    task: Any = run.config.task
    measured = [each for each in RunFolder(run.folder).read_metrics() if "bleu" in each]
    if not measured:
        return "Not measured: no text for validation was given."
    lowercase = task.lowercase
    signatures = quality(["a"], ["a"], lowercase=lowercase).signatures
    last = next((each for each in measured if each["step"] == run.step), measured[-1])
    return (
        f"BLEU {last['bleu']:.1f} on the validation text at step {last['step']:,}, by greedy search "
        f"({signatures['bleu_lowercase' if lowercase else 'bleu']}). No test set was measured."
    )
