"""Memory and time of a long input: a decoder-only model of 12 layers and 12 heads, 8,192 tokens.

    python benchmarks/long_inputs.py [--tokens 8192]

`forward`: a plain pass. `record_long`: recorded, and a row of weights worked out again. `page`: `regard.look` and
`attend` as the explorer asks, one token written, and the page of it. Each runs in a process of its own, of which
the peak memory is measured.
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
from regard.external import record_long

WAYS = ("forward", "record_long", "page")


def measure(way: str, tokens: int) -> None:
    """Run once."""
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
    given = torch.randint(0, 1000, (1, tokens))
    start = time.perf_counter()
    with torch.no_grad():
        if way == "forward":
            model(given, use_cache=False)
        else:
            with record_long(model) as records:
                model(given, use_cache=False)
            one = records["model.6.self_attn"]
            row = one.rows([tokens - 1])
            torch.testing.assert_close(one.values[:, :, -1:], row.topk(16).values, atol=1e-6, rtol=0)
    told(start)


def page(model: Any, tokens: int) -> None:
    """Look at a text of so many tokens, the one that is written among them, and write the page."""
    words = {f"w{number}": number for number in range(1000)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    text = " ".join(f"w{number}" for number in torch.randint(0, 1000, (tokens - 1,)).tolist())
    start = time.perf_counter()
    found = regard.look(model, tokenizer).attend(text)
    layer = found.layers["model.6.self_attn"]
    assert layer.rows is not None and abs(layer.rows.of(tokens - 2).sum(-1) - 1).max() < 1e-3
    with tempfile.TemporaryDirectory() as folder:
        found.save(Path(folder) / "page.html")
    told(start)


def told(start: float) -> None:
    """Print seconds and peak memory in MiB."""
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
