"""Speed of the Transformer on Multi30k, beside JoeyNMT 2.3, Hugging Face's MarianMT, and CTranslate2.

    python benchmarks/translation.py DATA [--steps 300] [--rounds 3] [--joeynmt FOLDER]

DATA: the folder of `regard data multi30k`. The same subwords, sizes, tokens in a batch and threads for all; each
contestant in processes of its own, turn by turn; medians. Every one trains its own model, and translates
test_2016_flickr with it; CTranslate2 translates with Regard's. JoeyNMT is set up as in recurrent.py. Needs the
extras peers and export.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from recurrent import HERE, joeynmt_python, run

SIZES: dict[str, Any] = {
    "hidden": 128,
    "heads": 4,
    "inner": 256,
    "enc_layers": 4,
    "dec_layers": 4,
    "dropout": 0.2,
}
TOKENS, SYMBOLS, SMOOTHING, RATE = 4096, 8000, 0.1, 0.004
EVERY = 10
"""Steps of one measurement."""
BATCH = 64
"""Sentences translated at once."""
BEAMS = (1, 5)


def files(data: Path) -> dict[str, tuple[str, str]]:
    """Return the files of each part, German to English."""
    parts = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
    return {part: (str(data / f"{name}.de.gz"), str(data / f"{name}.en.gz")) for part, name in parts.items()}


def texts(data: Path, part: str) -> list[tuple[str, str]]:
    """Return the pairs of one part."""
    from regard.text.parallel import ParallelText

    return list(ParallelText(files(data)[part]))


def ours(data: Path, steps: int, folder: Path) -> dict[str, Any]:
    """Train and translate with Regard; to be run in a process of its own. The run stays in `folder`."""
    import regard
    from regard.text.buckets import Buckets

    drawn: list[tuple[float, int]] = []
    draw = Buckets.draw

    def counted(self: Buckets, step: int = 0) -> Any:
        batch = draw(self, step)
        drawn.append((time.perf_counter(), batch.tokens))
        return batch

    Buckets.draw = counted  # type: ignore[method-assign]
    sizes: dict[str, Any] = {**SIZES, "vocab_size": SYMBOLS, "tokens": TOKENS, "steps": steps, "lr": RATE}
    trained = regard.train(
        "translation", train=files(data)["train"], **sizes, savepath=folder, overwrite=True, progress=False
    )
    assert isinstance(trained, regard.TranslationRun)
    speeds = _speeds(drawn)
    pairs, seconds, bleu = texts(data, "test"), {}, {}
    for beam in BEAMS:
        began = time.perf_counter()
        found = trained.translate([source for source, _ in pairs], beam=beam, batchsize=BATCH)
        seconds[str(beam)] = time.perf_counter() - began
        bleu[str(beam)] = _bleu(found, pairs)
    return {"train": speeds, "seconds": seconds, "bleu": bleu, "parameters": _parameters(trained.model)}


def ctranslate2(data: Path, steps: int, folder: Path) -> dict[str, Any]:
    """Translate with CTranslate2 what Regard has trained."""
    import ctranslate2 as peer
    import tokenizers

    from regard.api import SequenceRun, load
    from regard.api.export import export_ctranslate2

    del steps
    trained = load("translation", savepath=folder)
    assert isinstance(trained, SequenceRun)
    exported = folder / "exported"
    if not exported.exists():
        export_ctranslate2(trained, exported)
    tokenizer = tokenizers.Tokenizer.from_file(str(exported / "source.json"))
    threads = int(os.environ["OMP_NUM_THREADS"])
    translator = peer.Translator(str(exported), compute_type="float32", inter_threads=1, intra_threads=threads)
    pairs, seconds, bleu = texts(data, "test"), {}, {}
    for beam in BEAMS:
        began = time.perf_counter()
        tokens = [tokenizer.encode(source).tokens for source, _ in pairs]
        found = translator.translate_batch(
            tokens, beam_size=beam, max_batch_size=BATCH, disable_unk=True, length_penalty=0.0
        )
        answers = ["".join(each.hypotheses[0]).replace("▁", " ").strip() for each in found]
        seconds[str(beam)] = time.perf_counter() - began
        bleu[str(beam)] = _bleu(answers, pairs)
    return {"seconds": seconds, "bleu": bleu}


def hugging_face(data: Path, steps: int, folder: Path) -> dict[str, Any]:
    """Train and translate with Hugging Face's MarianMT, on Regard's own batches."""
    import torch
    import torch.nn.functional as F
    from transformers import MarianConfig, MarianMTModel

    from regard.api import SequenceRun, load
    from regard.text import BOS, EOS, PAD, collate
    from regard.text.buckets import Buckets
    from regard.text.corpus import open_corpus

    trained = load("translation", savepath=folder)
    assert isinstance(trained, SequenceRun)
    source, target = trained.task.source_vocabulary, trained.task.target_vocabulary
    [corpus] = (folder / "prepared").glob("corpus-*")
    batches = Buckets(open_corpus(corpus), TOKENS, seed=0)
    torch.manual_seed(0)
    model: Any = MarianMTModel(
        MarianConfig(
            vocab_size=len(source),
            d_model=SIZES["hidden"],
            encoder_layers=SIZES["enc_layers"],
            decoder_layers=SIZES["dec_layers"],
            encoder_attention_heads=SIZES["heads"],
            decoder_attention_heads=SIZES["heads"],
            encoder_ffn_dim=SIZES["inner"],
            decoder_ffn_dim=SIZES["inner"],
            dropout=SIZES["dropout"],
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=512,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            forced_eos_token_id=None,
            decoder_start_token_id=BOS,
        )
    )
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), fused=True)
    warm = torch.optim.lr_scheduler.OneCycleLR(adam, max_lr=RATE / 4, total_steps=steps, pct_start=0.1)
    drawn: list[tuple[float, int]] = []
    for _ in range(steps):
        batch = batches.draw()
        drawn.append((time.perf_counter(), batch.tokens))
        logits = model(
            input_ids=batch.source, attention_mask=batch.source_mask.long(), decoder_input_ids=batch.target_in
        ).logits
        loss = F.cross_entropy(
            logits.flatten(0, 1), batch.target.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING
        )
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        warm.step()
    model.eval()
    pairs, seconds, bleu = texts(data, "test"), {}, {}
    for beam in BEAMS:
        began = time.perf_counter()
        encoded = [source.encode(text) for text, _ in pairs]
        order = sorted(range(len(pairs)), key=lambda index: len(encoded[index]))
        answers = [""] * len(pairs)
        for begin in range(0, len(order), BATCH):
            rows = order[begin : begin + BATCH]
            inputs = collate([encoded[row] for row in rows])
            with torch.inference_mode():
                written = model.generate(
                    inputs,
                    attention_mask=(inputs != PAD).long(),
                    num_beams=beam,
                    do_sample=False,
                    max_new_tokens=2 * inputs.shape[1] + 50,
                )
            for row, tokens in zip(rows, written.tolist(), strict=True):
                answers[row] = target.decode(tokens[1:])
        seconds[str(beam)] = time.perf_counter() - began
        bleu[str(beam)] = _bleu(answers, pairs)
    return {"train": _speeds(drawn), "seconds": seconds, "bleu": bleu, "parameters": _parameters(model)}


def joeynmt(python: Path, data: Path, steps: int, folder: Path, threads: int) -> dict[str, Any]:
    """Train and translate with JoeyNMT, on Regard's own subwords."""
    from regard.api import SequenceRun, load

    trained = load("translation", savepath=folder)
    assert isinstance(trained, SequenceRun)
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        config = joeynmt_files(here, data, trained.task.source_vocabulary, threads, validated=64)
        config["training"] |= {
            "learning_rate": RATE / 4,
            "scheduling": "exponential",
            "clip_grad_norm": 1.0,
            "updates": steps,
            "logging_freq": EVERY,
            "validation_freq": steps,
            "early_stopping_metric": "loss",
        }
        (here / "config.json").write_text(json.dumps(config))
        found = run([str(python), str(HERE / "joeynmt_peer.py"), str(here)], threads)
        pairs = texts(data, "test")
        bleu = {str(beam): _bleu(joined(here / f"found-{beam}.txt"), pairs) for beam in BEAMS}
        return {**found, "bleu": bleu}


def joeynmt_files(
    here: Path, data: Path, vocabulary: Any, threads: int, *, validated: int | None = None
) -> dict[str, Any]:
    """Write the text, cut into subwords, and return a configuration to be completed by a schedule.

    `validated`: pairs of the validation text that are kept.
    """
    for split, part in (("train", "train"), ("dev", "valid"), ("test", "test")):
        pairs = texts(data, part)[: validated if part == "valid" else None]
        for side, ending in enumerate(("src", "trg")):
            cut = (" ".join(vocabulary.labels(vocabulary.encode(pair[side]))) for pair in pairs)
            (here / f"{split}.{ending}").write_text("".join(f"{line}\n" for line in cut))
    symbols = ["<unk>", "<pad>", "<s>", "</s>", *vocabulary.symbols[4:]]
    (here / "symbols.txt").write_text("".join(f"{symbol}\n" for symbol in symbols))
    side_config = {"level": "word", "max_length": 256, "voc_file": str(here / "symbols.txt")}
    layer = {"type": "transformer", "hidden_size": SIZES["hidden"], "ff_size": SIZES["inner"]}
    layer |= {"num_heads": SIZES["heads"], "dropout": SIZES["dropout"], "layer_norm": "pre"}
    embeddings = {"embeddings": {"embedding_dim": SIZES["hidden"], "scale": True, "dropout": 0.0}}
    return {
        "name": "multi30k",
        "threads": threads,
        "joeynmt_version": "2.3.0",
        "model_dir": str(here / "model"),
        "use_cuda": False,
        "random_seed": 0,
        "data": {
            **{split: str(here / split) for split in ("train", "dev", "test")},
            "dataset_type": "plain",
            "src": {"lang": "src", **side_config},
            "trg": {"lang": "trg", **side_config},
        },
        "testing": {"batch_size": BATCH, "max_output_length": 100, "eval_metrics": []},
        "training": {
            "loss": "crossentropy",
            "label_smoothing": SMOOTHING,
            "batch_size": TOKENS,
            "batch_type": "token",
            "normalization": "tokens",
            "epochs": 1000,
            "print_valid_sents": [],
        },
        "model": {
            "initializer": "xavier_uniform",
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": {**layer, "num_layers": SIZES["enc_layers"], **embeddings},
            "decoder": {**layer, "num_layers": SIZES["dec_layers"], **embeddings},
        },
    }


def joined(path: Path) -> list[str]:
    """Return the lines of a file of subwords as text."""
    return [line.replace(" ", "").replace("▁", " ").strip() for line in path.read_text().splitlines()]


CONTESTANTS = {"Regard": ours, "Hugging Face MarianMT": hugging_face, "CTranslate2": ctranslate2}


def main() -> None:
    """Let each contestant run in turn, and print tables of medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of Multi30k's files")
    parser.add_argument("--steps", type=int, default=300, help="training steps of each (default: 300)")
    parser.add_argument("--rounds", type=int, default=3, help="times each contestant runs (default: 3)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each (default: all cores)")
    parser.add_argument("--joeynmt", type=Path, default=HERE.parent / ".venv" / "joeynmt")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        name, folder = args.worker
        print(json.dumps(CONTESTANTS[name](args.data, args.steps, Path(folder))))
        return
    python = joeynmt_python(args.joeynmt)
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):
            for name in CONTESTANTS:
                command = [sys.executable, __file__, str(args.data), "--steps", str(args.steps)]
                found.setdefault(name, []).append(run([*command, "--worker", name, folder], args.threads))
            peer = joeynmt(python, args.data, args.steps, Path(folder), args.threads)
            found.setdefault("JoeyNMT", []).append(peer)
    print(f"{platform.machine()}, {args.threads} threads, {args.rounds} rounds of {args.steps} steps, medians\n")
    print(HEAD)
    for name, results in found.items():
        print(row(name, results, found["Regard"]))


HEAD = """| program | training, tokens/s | Regard's ratio | greedy, sentences/s | ratio | beam 5 | ratio | BLEU |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


def row(name: str, results: list[dict[str, Any]], mine: list[dict[str, Any]]) -> str:
    """Return a line of the table, each figure with what Regard's is to it."""

    def speeds(runs: list[dict[str, Any]]) -> list[float | None]:
        trained = [speed for each in runs for speed in each.get("train", [])[1:]]
        searched = [statistics.median(1000 / each["seconds"][str(beam)] for each in runs) for beam in BEAMS]
        return [statistics.median(trained) if trained else None, *searched]

    cells = [name]
    for other, own in zip(speeds(results), speeds(mine), strict=True):
        cells += ["", ""] if other is None or own is None else [f"{other:,.0f}", f"{own / other:.2f}"]
    cells.append(f"{statistics.median(each['bleu']['5'] for each in results):.1f}")
    return f"| {' | '.join(cells)} |"


def _speeds(drawn: list[tuple[float, int]]) -> list[float]:
    """Return tokens a second of every few steps, from when each batch was drawn and how many tokens it has."""
    marks = range(0, len(drawn) - EVERY, EVERY)
    return [
        sum(tokens for _, tokens in drawn[begin : begin + EVERY]) / (drawn[begin + EVERY][0] - drawn[begin][0])
        for begin in marks
    ]


def _bleu(found: list[str], pairs: list[tuple[str, str]]) -> float:
    from regard.evaluation import bleu

    return bleu(found, [target for _, target in pairs])


def _parameters(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    main()
