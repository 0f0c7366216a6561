"""A user's program with every call of the README; `make lint` checks it with pyright in strict mode."""

from pathlib import Path
from typing import Any

import torch

import regard

run = regard.train("signal2", heads=8, steps=2000, savepath=Path("models"))
steps: int = run.config.training.steps
heads: int = run.config.model.heads
letters: int = run.config.task.max_len
report = run.test(samples=1000, seed=1)
match: float = report.exact_match
best: float = 0.0 if report.relevance is None else max(report.relevance.heads)
attention = run.attend("BCCCBAABACCCA")
print(report, attention, attention.cross.weights[3], attention.truth)
saved: Path = attention.save("attention.html")
importance: dict[str, list[float]] = run.importance(samples=100).added
for sentence in run.examine(samples=50).sentences:
    print(sentence)
subjects: list[regard.Subject[Any]] = [run]
print(regard.head_importance(run), regard.examine(run, samples=20), subjects)
smaller = regard.prune(run, 2, "models/smaller")
print(smaller.run.step, smaller.parameters_after, smaller.table())

dates = regard.train("dates", hidden=64, cell="gru")
answers: list[str] = dates.translate(["3. Mai 1979", "14 juillet 1989"], beam=5)
candidate = dates.search(answers, beam=2, n_best=2)[0][1]
print(candidate.text, candidate.log_probability, dates.attend("3. Mai 1979", answer=candidate).words())
subjects.append(dates)
error: float = dates.test(samples=10).alignments["decoder.cross"].error_rate

translator = regard.train("translation", train=("a.de", "a.en"), preset="small", r_drop=3.0)
bleu: float = translator.test(["b.de", "b.en"]).quality.main
subjects.append(translator)
folder: Path = regard.export(translator, to="ctranslate2")
again = regard.load("counting", savepath="models")
vary_len: bool = again.config.training.vary_len
comparison = regard.compare("reverse", {"score": ["dot", "additive"]}, seeds=5, steps=100)
print(comparison.table(), comparison.json(), comparison.save())

layer = torch.nn.TransformerEncoderLayer(16, nhead=2, batch_first=True)
with regard.record(layer, query_labels=["a", "b"]) as records:
    layer(torch.randn(1, 2, 16))
weights: torch.Tensor = records["self_attn"].weights
page: Path = regard.make_maps(records).to_html("records.html")
with regard.intervene(run.model, "cross", heads=[1], to="uniform"):
    print(run.attend().probabilities)
print(
    regard.plot("positions").save("waves.png"), regard.list_tasks()[0].input, regard.fetch("multi30k", savepath="data")
)
regard.show(run, browser=False)
