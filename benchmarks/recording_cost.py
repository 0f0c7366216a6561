"""Measure the cost of recording and displaying a model with 12 layers and 12 heads.

    python benchmarks/recording_cost.py [--tokens 64] [--batch 1] [--rounds 7]

The baselines are the model without recording, eager attention with `output_attentions` and, if installed,
BertViz. The model has the size of BERT-base and random weights. The program prints medians and minima of
the user time in one thread.
"""

import argparse
import functools
import importlib
import importlib.util
import resource
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from flags import count

import regard


def user_seconds(*works: Callable[[], Any], rounds: int = 7) -> list[list[float]]:
    """Return the user seconds of each function in each round, called alternately after one warm-up round."""
    timings: list[list[float]] = [[] for _ in works]
    for number in range(rounds + 1):
        order = range(len(works)) if number % 2 else reversed(range(len(works)))
        for index in order:
            start = resource.getrusage(resource.RUSAGE_SELF).ru_utime
            works[index]()
            timings[index].append(resource.getrusage(resource.RUSAGE_SELF).ru_utime - start)
    return [times[1:] for times in timings]


def recording(model: Any, inputs: Any, rounds: int) -> None:
    """Print the time of passes with and without recording."""
    eager = type(model)(model.config)
    eager.load_state_dict(model.state_dict())
    eager.set_attn_implementation("eager")
    eager.eval()

    def recorded(module: Any = model, **options: Any) -> None:
        with regard.record(module, **options):
            module(inputs)

    ways: dict[str, Callable[[], Any]] = {
        "not recorded (sdpa)": lambda: model(inputs),
        "one row recorded": lambda: recorded(rows=[0]),
        "one layer recorded": lambda: recorded(layers=["encoder.layer.5.attention.self"]),
        "all layers recorded": recorded,
        "all layers of the eager model recorded": lambda: recorded(eager),
        "eager, output_attentions=True": lambda: eager(inputs, output_attentions=True),
    }
    timings = user_seconds(*ways.values(), rounds=rounds)
    medians, minima = [statistics.median(times) for times in timings], [min(times) for times in timings]
    print("| pass | median, s | minimum, s | relative to no recording | relative to eager |")
    print("|---|---|---|---|---|")
    for name, median, minimum in zip(ways, medians, minima, strict=True):
        ratios = [f"{median / medians[base]:.3f} ({minimum / minima[base]:.3f})" for base in (0, -1)]
        print(f"| {name} | {median:.3f} | {minimum:.3f} | {' | '.join(ratios)} |", flush=True)


def showing(model: Any, inputs: Any, tokens: list[str]) -> None:
    """Print the time of writing a page and a picture."""
    with regard.record(model) as records:
        model(inputs)
    weights = tuple(layer.weights for layer in records.values())
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder, "page.html"), Path(folder, "heads.png")
        outputs = {
            "Regard, page": (lambda: regard.view_weights(weights, tokens).to_html(page), page),
            "Regard, picture": (lambda: regard.view_weights(weights, tokens).plot(picture), picture),
        }
        print("\n| | seconds | size, KiB |\n|---|---|---|")
        for name, (write, path) in outputs.items():
            [times] = user_seconds(write, rounds=3)
            print(f"| {name} | {statistics.median(times):.2f} | {path.stat().st_size / 1024:,.0f} |")
    if importlib.util.find_spec("bertviz") is None:
        print("| BertViz | not installed | |")
        return
    bertviz: Any = importlib.import_module("bertviz")
    for name in ("head_view", "model_view"):
        show: Any = functools.partial(getattr(bertviz, name), weights, tokens, html_action="return")
        size = len(show().data.encode())
        [times] = user_seconds(show, rounds=3)
        print(f"| BertViz, {name} | {statistics.median(times):.2f} | {size / 1024:,.0f} |")


def main() -> None:
    """Run all measurements, and print the tables."""
    import transformers

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=count, default=64, help="tokens of a sequence, at most 512 (default: 64)")
    parser.add_argument("--batch", type=count, default=1, help="sequences (default: 1)")
    parser.add_argument("--rounds", type=count, default=7, help="measured rounds (default: 7)")
    options = parser.parse_args()
    if options.tokens > 512:
        parser.error("--tokens: at most 512, the number of positions of the model")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig()).eval()
    inputs = torch.randint(0, 1000, (options.batch, options.tokens))
    print(f"Regard {regard.__version__}, PyTorch {torch.__version__}, {options.batch} x {options.tokens} tokens\n")
    with torch.no_grad():
        recording(model, inputs, options.rounds)
        showing(model, inputs[:1], [f"w{number}" for number in range(options.tokens)])


if __name__ == "__main__":
    main()
