"""What recording and showing a model of 12 layers and 12 heads costs, beside the model itself and BertViz.

    python benchmarks/recording_cost.py [--tokens 64]

BertViz is measured where it is installed. Seconds are medians, of the processor, on one thread.
"""

import argparse
import functools
import importlib
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import regard


def seconds(*works: Callable[[], Any], times: int = 7) -> list[float]:
    """Return the median of the processor's seconds of each, taken in turns; the first round does not count."""
    found: list[list[float]] = [[] for _ in works]
    for _ in range(times + 1):
        for work, took in zip(works, found, strict=True):
            start = time.process_time()
            work()
            took.append(time.process_time() - start)
    return [statistics.median(took[1:]) for took in found]


def recording(model: Any, given: Any) -> None:
    """Print what recording costs."""
    eager = type(model)(model.config)
    eager.load_state_dict(model.state_dict())
    eager.set_attn_implementation("eager")
    eager.eval()

    def recorded(**options: Any) -> None:
        with regard.record(model, **options):
            model(given)

    ways: dict[str, Callable[[], Any]] = {
        "not recorded (sdpa)": lambda: model(given),
        "one layer recorded": lambda: recorded(layers=["encoder.layer.5.attention.self"]),
        "all layers recorded": recorded,
        "eager, output_attentions=True": lambda: eager(given, output_attentions=True),
    }
    found = seconds(*ways.values())
    print("| pass | seconds | times the plain one |\n|---|---|---|")
    for name, took in zip(ways, found, strict=True):
        print(f"| {name} | {took:.3f} | {took / found[0]:.2f} |")


def showing(model: Any, given: Any, tokens: list[str]) -> None:
    """Print what a page and a picture cost."""
    with regard.record(model) as records:
        model(given)
    weights = tuple(each.weights for each in records.values())
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder, "page.html"), Path(folder, "heads.png")
        found = {
            "Regard, page": (seconds(lambda: regard.view_weights(weights, tokens).to_html(page), times=3), page),
            "Regard, picture": (
                seconds(lambda: regard.view_weights(weights, tokens).plot(picture), times=3),
                picture,
            ),
        }
        print("\n| | seconds | size, KiB |\n|---|---|---|")
        for name, ([took], path) in found.items():
            print(f"| {name} | {took:.2f} | {path.stat().st_size / 1024:,.0f} |")
    if importlib.util.find_spec("bertviz") is None:
        print("| BertViz | not installed | |")
        return
    theirs: Any = importlib.import_module("bertviz")
    for name in ("head_view", "model_view"):
        show: Any = functools.partial(getattr(theirs, name), weights, tokens, html_action="return")
        size = len(show().data.encode())
        print(f"| BertViz, {name} | {seconds(show, times=3)[0]:.2f} | {size / 1024:,.0f} |")


def main() -> None:
    """Measure, and print tables."""
    import transformers

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig()).eval()
    given = torch.randint(0, 1000, (1, options.tokens))
    print(f"Regard {regard.__version__}, PyTorch {torch.__version__}, {options.tokens} tokens\n")
    with torch.no_grad():
        recording(model, given)
        showing(model, given, [f"w{number}" for number in range(options.tokens)])


if __name__ == "__main__":
    main()
