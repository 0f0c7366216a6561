"""Measure the cost of recording and displaying a model with 12 layers and 12 heads.

    python benchmarks/recording_cost.py [--model bert] [--tokens 64] [--batch 1] [--rounds 7]

The baselines are the model without recording, eager attention with `output_attentions` and, if installed,
BertViz. The model has the size of BERT-base, or of GPT-2 small, and random weights. The program prints medians and
minima of the user time in one thread.
"""

import argparse
import functools
import importlib
import importlib.util
import os
import resource
import statistics
import tempfile
import time
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


def recording(model: Any, inputs: Any, layer: str, rounds: int) -> None:
    """Print the time of passes with and without recording; `layer`: name of a layer in records."""
    eager = type(model)(model.config)
    eager.load_state_dict(model.state_dict())
    eager.set_attn_implementation("eager")
    eager.eval()

    def recorded(*patterns: str, **options: Any) -> None:
        with regard.record(model, *patterns, **options):
            model(inputs)

    ways: dict[str, Callable[[], Any]] = {
        "not recorded (sdpa)": lambda: model(inputs),
        "one row recorded": lambda: recorded(rows=[0]),
        "one layer recorded": lambda: recorded(layers=[layer]),
        "all layers recorded": recorded,
        "activation `layer.5.z` recorded": lambda: recorded("layer.5.z"),
        "activation `layer.5.weights` recorded": lambda: recorded("layer.5.weights"),
        "eager, output_attentions=True": lambda: eager(inputs, output_attentions=True),
    }
    timings = user_seconds(*ways.values(), rounds=rounds)
    medians, minima = [statistics.median(times) for times in timings], [min(times) for times in timings]
    print("| pass | median, s | minimum, s | relative to no recording | relative to eager |")
    print("|---|---|---|---|---|")
    for name, median, minimum in zip(ways, medians, minima, strict=True):
        ratios = [f"{median / medians[base]:.3f} ({minimum / minima[base]:.3f})" for base in (0, -1)]
        print(f"| {name} | {median:.3f} | {minimum:.3f} | {' | '.join(ratios)} |", flush=True)
    print(f"\nEntering and leaving a block: {1000 * statistics.median(map(entering, [model] * 50)):.2f} ms")
    peaks = {name: peak_memory(work) for name, work in ways.items() if name.startswith(("not", "all", "eager"))}
    print(f"Peak memory of a pass, MiB: {', '.join(f'{peak:.0f} {name}' for name, peak in peaks.items())}")


def entering(model: Any) -> float:
    """Return the seconds of an empty recording."""
    start = time.perf_counter()
    with regard.record(model):
        pass
    return time.perf_counter() - start


def peak_memory(work: Callable[[], Any]) -> float:
    """Return by how many MiB the memory of a fork of this process grows during `work`, on Linux."""

    def status(name: str) -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))

    reader, writer = os.pipe()
    if not os.fork():
        before = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # begins a new peak
        result = work()
        os.write(writer, f"{status('VmHWM') - before}".encode())
        del result
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        return float(pipe.read())


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
    parser.add_argument("--model", choices=["bert", "gpt2"], default="bert", help="(default: bert)")
    parser.add_argument("--tokens", type=count, default=64, help="tokens of a sequence (default: 64)")
    parser.add_argument("--batch", type=count, default=1, help="sequences (default: 1)")
    parser.add_argument("--rounds", type=count, default=7, help="measured rounds (default: 7)")
    options = parser.parse_args()
    longest = 512 if options.model == "bert" else 1024
    if options.tokens > longest:
        parser.error(f"--tokens: at most {longest}, the number of positions of the model")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model: Any = transformers.BertModel(transformers.BertConfig())
    layer = "encoder.layer.5.attention.self"
    if options.model == "gpt2":
        model, layer = transformers.GPT2Model(transformers.GPT2Config()), "h.5.attn"
    model.eval()
    inputs = torch.randint(0, 1000, (options.batch, options.tokens))
    print(f"Regard {regard.__version__}, PyTorch {torch.__version__}, {options.batch} x {options.tokens} tokens\n")
    with torch.no_grad():
        recording(model, inputs, layer, options.rounds)
        if options.tokens <= 512:
            showing(model, inputs[:1], [f"w{number}" for number in range(options.tokens)])


if __name__ == "__main__":
    main()
