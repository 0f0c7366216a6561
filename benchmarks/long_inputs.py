"""Measure memory and time of a decoder-only model with 12 layers and 12 heads for an input of 8,192 tokens.

    python benchmarks/long_inputs.py [--tokens 8192]

`forward` is a plain forward pass. `record_long` records the pass and computes one row of weights again. `page`
runs `regard.look` and the requests of the explorer, generates one token, and writes the page. Each variant runs
in a separate process, whose peak memory is measured.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

import regard
from regard.external.layer_maps import record_long

WAYS = ("forward", "record_long", "page")


def measure(way: str, tokens: int) -> None:
    """Run a variant in this process."""
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
    model = transformers.LlamaForCausalLM(config).eval()
    if way == "page":
        page(model, tokens)
        return
    tokens_in = torch.randint(0, 1000, (1, tokens))
    start = time.perf_counter()
    with torch.no_grad():
        if way == "forward":
            model(tokens_in, use_cache=False)
        else:
            with record_long(model) as records:
                model(tokens_in, use_cache=False)
            layer = records["model.layers.6.self_attn"]
            row = layer.rows([tokens - 1])
            torch.testing.assert_close(layer.values[:, :, -1:], row.topk(16).values, atol=1e-6, rtol=0)
    print_usage(start)


def page(model: Any, tokens: int) -> None:
    """Read a text with the given number of tokens, generate one token, and write the page with the
    attention."""
    words = {f"w{number}": number for number in range(1000)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    text = " ".join(f"w{number}" for number in torch.randint(0, 1000, (tokens - 1,)).tolist())
    start = time.perf_counter()
    attention = regard.look(model, tokenizer).attend(text)
    layer = attention.layers["model.layers.6.self_attn"]
    assert layer.rows is not None and abs(layer.rows.of(tokens - 2).sum(-1) - 1).max() < 1e-3
    with tempfile.TemporaryDirectory() as folder:
        attention.save(Path(folder) / "page.html")
    print_usage(start)


def print_usage(start: float) -> None:
    """Print seconds and peak memory in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{time.perf_counter() - start:.1f} {peak:.0f}")


def main() -> None:
    """Measure each variant, and print the table."""
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
        usage = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        print(f"| {way} | {options.tokens:,} | {usage[0]} | {int(usage[1]):,} |", flush=True)


if __name__ == "__main__":
    main()
