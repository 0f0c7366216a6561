"""Measure the cost of recording and displaying a model with 12 layers and 12 heads.

    python benchmarks/recording_cost.py [--tokens 64]

The baselines are the model without recording and, if installed, BertViz. The program prints medians of
processor seconds in one thread.
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


def seconds(*works: Callable[[], Any], repeats: int = 7) -> list[float]:
    """Return the median processor seconds of each function, called alternately after one warm-up round."""
    timings: list[list[float]] = [[] for _ in works]
    for _ in range(repeats + 1):
        for work, times in zip(works, timings, strict=True):
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
    return [statistics.median(times[1:]) for times in timings]


def recording(model: Any, inputs: Any) -> None:
    """Print the time of passes with and without recording."""
    eager = type(model)(model.config)
    eager.load_state_dict(model.state_dict())
    eager.set_attn_implementation("eager")
    eager.eval()

    def recorded(**options: Any) -> None:
        with regard.record(model, **options):
            model(inputs)

    ways: dict[str, Callable[[], Any]] = {
        "not recorded (sdpa)": lambda: model(inputs),
        "one layer recorded": lambda: recorded(layers=["encoder.layer.5.attention.self"]),
        "all layers recorded": recorded,
        "eager, output_attentions=True": lambda: eager(inputs, output_attentions=True),
    }
    medians = seconds(*ways.values())
    print("| pass | seconds | relative to the pass without recording |\n|---|---|---|")
    for name, median in zip(ways, medians, strict=True):
        print(f"| {name} | {median:.3f} | {median / medians[0]:.2f} |")


def showing(model: Any, inputs: Any, tokens: list[str]) -> None:
    """Print the time of writing a page and a picture."""
    with regard.record(model) as records:
        model(inputs)
    weights = tuple(layer.weights for layer in records.values())
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder, "page.html"), Path(folder, "heads.png")
        outputs = {
            "Regard, page": (
                seconds(lambda: regard.view_weights(weights, tokens).to_html(page), repeats=3),
                page,
            ),
            "Regard, picture": (
                seconds(lambda: regard.view_weights(weights, tokens).plot(picture), repeats=3),
                picture,
            ),
        }
        print("\n| | seconds | size, KiB |\n|---|---|---|")
        for name, ([median], path) in outputs.items():
            print(f"| {name} | {median:.2f} | {path.stat().st_size / 1024:,.0f} |")
    if importlib.util.find_spec("bertviz") is None:
        print("| BertViz | not installed | |")
        return
    bertviz: Any = importlib.import_module("bertviz")
    for name in ("head_view", "model_view"):
        show: Any = functools.partial(getattr(bertviz, name), weights, tokens, html_action="return")
        size = len(show().data.encode())
        print(f"| BertViz, {name} | {seconds(show, repeats=3)[0]:.2f} | {size / 1024:,.0f} |")


def main() -> None:
    """Run all measurements, and print the tables."""
    import transformers

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig()).eval()
    inputs = torch.randint(0, 1000, (1, options.tokens))
    print(f"Regard {regard.__version__}, PyTorch {torch.__version__}, {options.tokens} tokens\n")
    with torch.no_grad():
        recording(model, inputs)
        showing(model, inputs, [f"w{number}" for number in range(options.tokens)])


if __name__ == "__main__":
    main()
