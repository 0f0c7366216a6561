"""Measure what `regard.watch` costs: processor time of one measurement, relative to 100 training steps.

    python benchmarks/watch_cost.py [--rounds 3]

A GPT-2 with 12 layers of 12 heads and 1,024 tokens, and one with 2 layers of 4 heads and 64 tokens, train on random
tokens. In each round, steps and measurements take turns. The table shows medians, and the memory that a measurement
allocates beyond that of a training step, relative to the weights of one layer.
"""

import argparse
import statistics
import threading
import time
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from regard.interpret.health import HealthMeter, WatchedInput

SHAPES = {"12 layers": (12, 12, 768, 1024, 1, 50257), "tiny": (2, 4, 64, 64, 8, 256)}


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def peak_during(run: object) -> int:
    """Return the largest number of bytes in memory while a function runs, minus the number before."""
    before, peak, done = resident(), [0], threading.Event()

    def sample() -> None:
        while not done.wait(0.002):
            peak[0] = max(peak[0], resident() - before)

    thread = threading.Thread(target=sample)
    thread.start()
    run()  # type: ignore[operator]
    done.set()
    thread.join()
    return peak[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of one step and one measurement (3)")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | step, CPU s | measurement, CPU s | every=100 | every=1 | memory of weights of a layer |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, (layers, heads, width, length, batch, symbols) in SHAPES.items():
        config = GPT2Config(n_layer=layers, n_head=heads, n_embd=width, n_positions=length, vocab_size=symbols)
        config.bos_token_id = config.eos_token_id = 0
        model = GPT2LMHeadModel(config)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        tokens = torch.randint(0, symbols, (batch, length))
        meter, probe = HealthMeter(model), WatchedInput((), {"input_ids": tokens})

        def step(model: GPT2LMHeadModel = model, tokens: torch.Tensor = tokens, optimizer: object = optimizer) -> None:
            model(input_ids=tokens, labels=tokens).loss.backward()
            optimizer.step()  # type: ignore[attr-defined]
            optimizer.zero_grad()  # type: ignore[attr-defined]

        step()
        meter.measure(probe)
        times: dict[str, list[float]] = {"step": [], "measurement": []}
        for _ in range(flags.rounds):
            for kind, run in (("step", step), ("measurement", lambda: meter.measure(probe))):  # noqa: B023
                began = time.process_time()
                run()
                times[kind].append(time.process_time() - began)
        seconds, cost = (statistics.median(values) for values in times.values())
        memory = max(0, peak_during(lambda: meter.measure(probe)) - peak_during(step))  # noqa: B023
        share = memory / (4 * batch * heads * length**2)
        print(
            f"| {name} | {seconds:.3f} | {cost:.3f} | {cost / seconds:.2f} % | {100 * cost / seconds:.0f} % "
            f"| {share:.2f} |"
        )


if __name__ == "__main__":
    main()
