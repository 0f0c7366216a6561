"""Memory and time of recording a long input: a decoder-only model of 12 layers and 12 heads, 8,192 tokens.

    python benchmarks/long_inputs.py [--tokens 8192]

Each way runs in a process of its own, whose peak memory is measured.
"""

import argparse
import resource
import subprocess
import sys
import time

import torch

import regard
from regard.foreign import record_long

WAYS = ("forward", "record_long")


def measure(way: str, tokens: int) -> None:
    """Run once, and print seconds and peak memory in MiB."""
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=1000,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=12,
        max_position_embeddings=tokens,
    )
    model = transformers.LlamaModel(config).eval()
    given = torch.randint(0, 1000, (1, tokens))
    start = time.perf_counter()
    with torch.no_grad():
        if way == "forward":
            model(given, use_cache=False)
        else:
            with record_long(model) as records:
                model(given, use_cache=False)
            one = records["layers.6.self_attn"]
            row = one.rows([tokens - 1])
            torch.testing.assert_close(one.values[:, :, -1:], row.topk(16).values, atol=1e-6, rtol=0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{time.perf_counter() - start:.1f} {peak:.0f}")


def main() -> None:
    """Measure each way, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--way", choices=WAYS)
    options = parser.parse_args()
    if options.way:
        measure(options.way, options.tokens)
        return
    print(f"Regard {regard.__version__}, PyTorch {torch.__version__}, {torch.get_num_threads()} threads\n")
    print("| 12 layers, 12 heads | tokens | seconds | peak memory, MiB |\n|---|---|---|---|")
    for way in WAYS:
        command = [sys.executable, __file__, "--way", way, "--tokens", str(options.tokens)]
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        print(f"| {way} | {options.tokens:,} | {found[0]} | {int(found[1]):,} |", flush=True)


if __name__ == "__main__":
    main()
