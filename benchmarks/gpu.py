"""Test and measure Regard on a GPU: training, attention and search.

    python benchmarks/gpu.py [--minutes 8] [--parts attention training ...] [--json FILE]

The program needs pytest for its last part, the tests with the marker `gpu`, and transformers for one row of
the searches. It generates its text. Parts that do not begin within the minutes are left out, and named. Without
a GPU, the program stops, unless `--small` is given: then it runs all parts with small sizes on the CPU.
"""

import argparse
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import gpu_training
import torch
import torch.nn.functional as F
from flags import new_file
from markdown_tables import markdown
from torch import Tensor, nn

import regard
from regard.attention.multihead import MultiHeadAttention

REPEATS = 10


class Setting(NamedTuple):
    """Device and sizes of all parts."""

    device: torch.device
    small: bool
    peak: float
    """FLOP/s of a large bfloat16 product."""


def peak_flops(device: torch.device, *, small: bool) -> float:
    """Return the FLOP/s of a large product of random bfloat16 matrices."""
    rows = 256 if small else 8192
    matrix = torch.randn(rows, rows, device=device, dtype=torch.bfloat16)
    return 2 * rows**3 / median_seconds(lambda: matrix @ matrix, device)


def median_seconds(work: Callable[[], Any], device: torch.device, repeats: int = REPEATS) -> float:
    """Return the median wall-clock time of a call, after two calls that are not counted."""
    seconds = []
    for _ in range(repeats + 2):
        began = time.perf_counter()
        work()
        gpu_training.synchronize(device)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[2:])


def tests(setting: Setting) -> str:
    """Run the tests with the marker `gpu` in another process."""
    folder = Path(__file__).parent.parent / "tests"
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", str(folder / "test_gpu.py")]
    if setting.small:
        command.append("--collect-only")
    process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder.parent)
    lines = process.stdout.strip().splitlines()
    failures = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    print(process.stdout[-6000:], process.stderr[-1000:], flush=True)
    return "\n".join([*failures, lines[-1] if lines else process.stderr[-300:]])


def training(setting: Setting) -> str:
    """Measure training steps beside the strong plain loops."""
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        text = gpu_training.write_text(Path(name), pairs=500 if setting.small else 20_000)
        for workload in gpu_training.workloads(small=setting.small):
            results += gpu_training.compare(
                workload, text[workload.task], setting.device, setting.peak, small=setting.small
            )
    return gpu_training.table(results)


class RawAttention(nn.Module):
    """Four projections and the fused kernel."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.parts = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, states: Tensor) -> Tensor:
        """Apply self-attention to states (B, T, D)."""
        parts = [part(states).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.parts[:3]]
        context = F.scaled_dot_product_attention(*parts)
        output: Tensor = self.parts[3](context.transpose(1, 2).flatten(2))
        return output


def attention(setting: Setting) -> str:
    """Measure an attention layer, unrecorded and recorded, beside the raw kernel and PyTorch's layer."""
    width, heads = (32, 4) if setting.small else (512, 8)
    lengths = (16, 32) if setting.small else (512, 2048, 4096)
    device, dtype = setting.device, torch.bfloat16
    body = []
    for length in lengths:
        batch = 2 if setting.small else 8192 // length
        states = torch.randn(batch, length, width, device=device, dtype=dtype, requires_grad=True)
        with ExitStack() as recordings:
            for name, layer in _layers(width, heads, device, dtype, recordings):
                body.append([f"{length:,}", f"{batch}", name, *_costs(layer, states, device)])
    head = ["T", "B", "layer", "forward, ms", "forward and backward, ms", "memory of a forward pass, MiB"]
    return markdown(head, body)


def _layers(
    width: int, heads: int, device: torch.device, dtype: torch.dtype, recordings: ExitStack
) -> list[tuple[str, Callable[[Tensor], Tensor]]]:
    """Return each layer with its name; recorded layers are recorded until `recordings` ends."""
    peer = nn.MultiheadAttention(width, heads, bias=False, batch_first=True).to(device, dtype)
    plain, rows, full = (MultiHeadAttention(width, heads).to(device, dtype) for _ in range(3))
    recordings.enter_context(regard.record(rows, rows=range(8)))
    recordings.enter_context(regard.record(full))
    return [
        ("raw kernel", RawAttention(width, heads).to(device, dtype)),
        ("Regard", plain),
        ("Regard, eight rows recorded", rows),
        ("Regard, recorded", full),
        (
            "`nn.MultiheadAttention`, weights of each head",
            lambda states: peer(states, states, states, average_attn_weights=False)[0],
        ),
    ]


def _costs(layer: Callable[[Tensor], Tensor], states: Tensor, device: torch.device) -> list[str]:
    def forward() -> None:
        with torch.no_grad():
            layer(states)

    def both() -> None:
        layer(states).sum().backward()
        states.grad = None

    memory = "-"
    forward()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        forward()
        memory = f"{(torch.cuda.max_memory_allocated() - before) / 2**20:,.0f}"
    return [*(f"{1e3 * median_seconds(work, device):.3f}" for work in (forward, both)), memory]


def search(setting: Setting) -> str:
    """Measure greedy and beam search of the tiny Transformer, beside `generate` of Hugging Face's MarianMT."""
    sentences, steps = (20, 30) if setting.small else (2000, 600)
    sizes = {"hidden": 32, "heads": 4, "inner": 64, "enc_layers": 1, "dec_layers": 1} if setting.small else {}
    with tempfile.TemporaryDirectory() as name:
        text = gpu_training.write_text(Path(name), pairs=500 if setting.small else 20_000)["translation"]
        flags = {**sizes, "preset": "marian", "tokenizer": "words", "vocab_size": 8000, "steps": steps}
        run = regard.train("translation", **text, **flags, savepath=name, progress=False)
        with Path(text["train"][0]).open(encoding="utf-8") as lines:
            sources = [line.strip() for line, _ in zip(lines, range(sentences), strict=False)]
        programs: dict[str, Callable[[int], list[str]]] = {
            "Regard": lambda beam: run.translate(sources, beam=beam, length_penalty=0.0, batchsize=256)
        }
        try:
            programs["Hugging Face MarianMT"] = _hugging_face(run, sources, setting)
        except ImportError as error:
            print(f"Hugging Face is left out: {error}")
        body = [
            _search_row(name, program, beam, sources, setting) for beam in (1, 5) for name, program in programs.items()
        ]
    return markdown(["beam", "program", "sentences/s", "words per answer", "first answers"], body)


def _search_row(
    name: str, program: Callable[[int], list[str]], beam: int, sources: list[str], setting: Setting
) -> list[str]:
    program(beam)
    began = time.perf_counter()
    answers = program(beam)
    gpu_training.synchronize(setting.device)
    speed = len(sources) / (time.perf_counter() - began)
    words = statistics.mean(len(answer.split()) for answer in answers)
    right = statistics.mean(
        answer == " ".join(word[::-1] for word in source.split())
        for answer, source in zip(answers, sources, strict=True)
    )
    return [f"{beam}", name, f"{speed:,.0f}", f"{words:.1f}", f"{right:.0%} right"]


def _hugging_face(run: Any, sources: list[str], setting: Setting) -> Callable[[int], list[str]]:
    """Return a search with MarianMT and the same weights, in batches of 256 sentences of similar length."""
    from peer_weights import for_marian
    from transformers import MarianConfig, MarianMTModel

    from regard.data.batch import collate
    from regard.data.vocabulary import BOS, EOS, PAD

    source, target, model = run.task.source_vocabulary, run.task.target_vocabulary, run.config.model
    config = MarianConfig(
        vocab_size=len(source),
        d_model=model.hidden,
        encoder_layers=model.enc_layers,
        decoder_layers=model.dec_layers,
        encoder_attention_heads=model.heads,
        decoder_attention_heads=model.heads,
        encoder_ffn_dim=model.inner,
        decoder_ffn_dim=model.inner,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=512,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        forced_eos_token_id=None,
        decoder_start_token_id=BOS,
    )
    peer: Any = MarianMTModel(config)
    peer.load_state_dict(for_marian(run.model.cpu(), 512))
    run.model.to(setting.device)
    peer.to(setting.device).eval()
    encoded = [source.encode(sentence) for sentence in sources]
    order = sorted(range(len(sources)), key=lambda index: len(encoded[index]))

    def translate(beam: int) -> list[str]:
        answers = [""] * len(sources)
        for begin in range(0, len(order), 256):
            rows = order[begin : begin + 256]
            inputs = collate([encoded[row] for row in rows]).to(setting.device)
            options = {"num_beams": beam, "do_sample": False, "length_penalty": 0.0, "early_stopping": True}
            with torch.inference_mode():
                tokens = peer.generate(
                    inputs, attention_mask=(inputs != PAD).long(), max_new_tokens=2 * inputs.shape[1] + 50, **options
                )
            for row, answer in zip(rows, tokens.tolist(), strict=True):
                answers[row] = target.decode(answer[1:])
        return answers

    return translate


PARTS: dict[str, Callable[[Setting], str]] = {
    "attention": attention,
    "search": search,
    "training": training,
    "tests": tests,
}


def main() -> None:
    """Run all parts, print their tables, and write them to a file after each part."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8, help="no part begins after this time (default: 8)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="parts (default: all)")
    parser.add_argument("--small", action="store_true", help="small sizes, also without a GPU")
    parser.add_argument("--json", type=new_file, help="write the tables to this file")
    args = parser.parse_args()
    began = time.perf_counter()
    if not torch.cuda.is_available() and not args.small:
        parser.exit(2, "gpu.py: PyTorch finds no GPU: use --small to run the program on the CPU\n")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    card = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    peak = peak_flops(device, small=args.small)
    machine = f"{card}, torch {torch.__version__}, Regard {regard.__version__}, {time.strftime('%Y-%m-%d')}"
    print(f"{machine}; large bfloat16 product: {peak / 1e12:.1f} TFLOP/s\n", flush=True)
    tables = {"machine": machine, "peak, TFLOP/s": f"{peak / 1e12:.1f}"}
    for part in args.parts:
        start = time.perf_counter()
        if start - began > 60 * args.minutes:
            tables[part] = f"left out after {args.minutes:g} minutes"
        else:
            try:
                tables[part] = PARTS[part](Setting(device, args.small, peak))
            except Exception as error:  # the other parts must still be measured
                tables[part] = f"failed: {type(error).__name__}: {error}"
        gc.collect()
        print(f"## {part} ({time.perf_counter() - start:.0f} s)\n\n{tables[part]}\n", flush=True)
        if args.json is not None:
            args.json.write_text(json.dumps(tables, indent=2))
    if any(table.startswith(("failed", "FAILED", "ERROR")) or "| failed:" in table for table in tables.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
