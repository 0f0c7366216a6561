"""Speed of the Transformer on Multi30k, beside JoeyNMT 2.3, Hugging Face's MarianMT, and CTranslate2.

    python benchmarks/translation.py DATA [--steps 100] [--rounds 3] [--model RUN] [--joeynmt FOLDER]

DATA: the folder of `regard data multi30k`. The same subwords, sizes, tokens in a batch and threads for all; each
contestant in processes of its own, turn by turn; medians. Training is timed over the first steps. All translate
test_2016_flickr with the same weights, those of a Transformer that Regard has trained (post-norm, as Marian's
is), so that what they write is as long; their BLEU shows that it is the same. JoeyNMT is set up as in
recurrent.py. Needs the extras peers and export.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recurrent import HERE, joeynmt_python, run
from tables import markdown

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
    """Train with Regard; to be run in a process of its own."""
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
    return {"train": _speeds(drawn), "parameters": _parameters(trained.model)}


def ours_searching(data: Path, model: Path, folder: Path) -> dict[str, Any]:
    """Translate with Regard."""
    del folder
    trained, pairs, found = _load(model), texts(data, "test"), _Searched()
    for beam in BEAMS:
        with found.timing(beam, pairs) as answers:
            answers += trained.translate([source for source, _ in pairs], beam=beam, batchsize=BATCH)
    return vars(found)


def ctranslate2_searching(data: Path, model: Path, folder: Path) -> dict[str, Any]:
    """Translate with CTranslate2, in float32."""
    import ctranslate2 as peer
    import tokenizers

    from regard.api.export import export_ctranslate2

    exported = folder / "exported"
    if not exported.exists():
        export_ctranslate2(_load(model), exported)
    tokenizer = tokenizers.Tokenizer.from_file(str(exported / "source.json"))
    threads = int(os.environ["OMP_NUM_THREADS"])
    translator = peer.Translator(str(exported), compute_type="float32", inter_threads=1, intra_threads=threads)
    pairs, searched = texts(data, "test"), _Searched()
    for beam in BEAMS:
        with searched.timing(beam, pairs) as answers:
            tokens = [tokenizer.encode(source).tokens for source, _ in pairs]
            found = translator.translate_batch(
                tokens, beam_size=beam, max_batch_size=BATCH, disable_unk=True, length_penalty=0.0
            )
            answers += ["".join(each.hypotheses[0]).replace("▁", " ").strip() for each in found]
    return vars(searched)


def hugging_face(data: Path, steps: int, folder: Path) -> dict[str, Any]:
    """Train Hugging Face's MarianMT, on Regard's own batches."""
    import torch
    import torch.nn.functional as F

    from regard.text import PAD
    from regard.text.buckets import Buckets
    from regard.text.corpus import open_corpus

    [corpus] = (folder / "prepared").glob("corpus-*")
    batches = Buckets(open_corpus(corpus), TOKENS, seed=0)
    torch.manual_seed(0)
    model = _marian(len(_load(folder / "translation").task.source_vocabulary))
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
    return {"train": _speeds(drawn), "parameters": _parameters(model)}


def hugging_face_searching(data: Path, model: Path, folder: Path) -> dict[str, Any]:
    """Translate with Hugging Face's MarianMT."""
    import torch
    from same_weights import for_marian

    from regard.text import PAD, collate

    del folder
    trained = _load(model)
    source, target = trained.task.source_vocabulary, trained.task.target_vocabulary
    marian = _marian(len(source))
    marian.load_state_dict(for_marian(trained.model, POSITIONS))
    marian.eval()
    pairs, searched = texts(data, "test"), _Searched()
    for beam in BEAMS:
        with searched.timing(beam, pairs) as answers:
            encoded = [source.encode(text) for text, _ in pairs]
            order = sorted(range(len(pairs)), key=lambda index: len(encoded[index]))
            found = [""] * len(pairs)
            for begin in range(0, len(order), BATCH):
                rows = order[begin : begin + BATCH]
                inputs = collate([encoded[row] for row in rows])
                with torch.inference_mode():
                    written = marian.generate(
                        inputs,
                        attention_mask=(inputs != PAD).long(),
                        num_beams=beam,
                        do_sample=False,
                        length_penalty=0.0,
                        early_stopping=True,
                        max_new_tokens=2 * inputs.shape[1] + 50,
                    )
                for row, tokens in zip(rows, written.tolist(), strict=True):
                    found[row] = target.decode(tokens[1:])
            answers += found
    return vars(searched)


POSITIONS = 512


def _marian(symbols: int) -> Any:
    from transformers import MarianConfig, MarianMTModel

    from regard.text import BOS, EOS, PAD

    return MarianMTModel(
        MarianConfig(
            vocab_size=symbols,
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
            max_position_embeddings=POSITIONS,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            forced_eos_token_id=None,
            decoder_start_token_id=BOS,
        )
    )


def joeynmt(python: Path, data: Path, steps: int, folder: Path, threads: int) -> dict[str, Any]:
    """Train with JoeyNMT, on Regard's own subwords."""
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        vocabulary = _load(folder / "translation").task.source_vocabulary
        config = joeynmt_files(here, data, vocabulary, threads, validated=64)
        config["training"] |= {
            "learning_rate": RATE / 4,
            "scheduling": "exponential",
            "clip_grad_norm": 1.0,
            "updates": steps,
            "logging_freq": EVERY,
            "validation_freq": steps,
            "early_stopping_metric": "loss",
        }
        (here / "config.json").write_text(json.dumps({**config, "search": False}))
        return run([str(python), str(HERE / "joeynmt_peer.py"), str(here)], threads)


def joeynmt_searching(python: Path, data: Path, model: Path, threads: int) -> dict[str, Any]:
    """Translate with JoeyNMT."""
    import torch
    from same_weights import for_joeynmt

    trained, pairs = _load(model), texts(data, "test")
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        config = joeynmt_files(here, data, trained.task.source_vocabulary, threads, validated=64)
        for side in ("encoder", "decoder"):
            config["model"][side]["layer_norm"] = "post"
        torch.save(for_joeynmt(trained.model, 5000), here / "weights.pt")
        (here / "config.json").write_text(json.dumps({**config, "weights": str(here / "weights.pt")}))
        found = run([str(python), str(HERE / "joeynmt_peer.py"), str(here)], threads)
        bleu = {str(beam): _bleu(joined(here / f"found-{beam}.txt"), pairs) for beam in BEAMS}
        return {"seconds": found["seconds"], "bleu": bleu}


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


TRAINING = {"Regard": ours, "Hugging Face MarianMT": hugging_face}
SEARCHING = {
    "Regard": ours_searching,
    "Hugging Face MarianMT": hugging_face_searching,
    "CTranslate2": ctranslate2_searching,
}


def main() -> None:
    """Let each contestant run in turn, and print tables of medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of Multi30k's files")
    parser.add_argument("--steps", type=int, default=100, help="training steps that are timed (default: 100)")
    parser.add_argument("--rounds", type=int, default=3, help="times each contestant runs (default: 3)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each (default: all cores)")
    parser.add_argument(
        "--model", type=Path, help="run to translate with (default: one is trained, half an hour)"
    )
    parser.add_argument("--only", choices=("training", "searching"), help="one part (default: both)")
    parser.add_argument("--joeynmt", type=Path, default=HERE.parent / ".venv" / "joeynmt")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        name, folder = args.worker
        if args.only == "training":
            print(json.dumps(TRAINING[name](args.data, args.steps, Path(folder))))
        else:
            print(json.dumps(SEARCHING[name](args.data, args.model, Path(folder))))
        return
    python = joeynmt_python(args.joeynmt)
    print(f"{platform.machine()}, {args.threads} threads, medians of {args.rounds} rounds\n")
    with tempfile.TemporaryDirectory() as folder:

        def ask(part: str, name: str, *more: str) -> dict[str, Any]:
            command = [sys.executable, __file__, str(args.data), "--steps", str(args.steps), "--only", part]
            return run([*command, *more, "--worker", name, folder], args.threads)

        if args.only != "searching":
            found: Results = {}
            for _ in range(args.rounds):
                for name in TRAINING:
                    found.setdefault(name, []).append(ask("training", name))
                peer = joeynmt(python, args.data, args.steps, Path(folder), args.threads)
                found.setdefault("JoeyNMT", []).append(peer)
            print(markdown(["program", "training, target tokens/s", "Regard's ratio"], _trained(found)), "\n")
        if args.only != "training":
            model = args.model or _model(args.data, Path(folder))
            searched: Results = {}
            for _ in range(args.rounds):
                for name in SEARCHING:
                    searched.setdefault(name, []).append(ask("searching", name, "--model", str(model)))
                peer = joeynmt_searching(python, args.data, model, args.threads)
                searched.setdefault("JoeyNMT", []).append(peer)
            head = ["program", "greedy, sentences/s", "Regard's ratio", "BLEU"]
            print(markdown([*head, "beam 5, sentences/s", "Regard's ratio", "BLEU"], _searched(searched)))


Results = dict[str, list[dict[str, Any]]]


def _model(data: Path, folder: Path) -> Path:
    """Train the model that all translate with: of the peers' norm, which comes after each sum."""
    import regard

    text: dict[str, Any] = dict(files(data))
    run = regard.train("translation", **text, **SIZES, lowercase=True, pre_norm=False, lr=0.001, savepath=folder)
    return run.folder


def _trained(found: Results) -> list[list[str]]:
    speeds = {
        name: statistics.median(speed for each in runs for speed in each["train"][1:])
        for name, runs in found.items()
    }
    return [[name, f"{speed:,.0f}", f"{speeds['Regard'] / speed:.2f}"] for name, speed in speeds.items()]


def _searched(found: Results) -> list[list[str]]:
    rows = []
    for name, runs in found.items():
        cells = [name]
        for beam in map(str, BEAMS):
            speed, mine = (
                statistics.median(1000 / each["seconds"][beam] for each in each_runs)
                for each_runs in (runs, found["Regard"])
            )
            cells += [f"{speed:,.0f}", f"{mine / speed:.2f}", f"{runs[0]['bleu'][beam]:.1f}"]
        rows.append(cells)
    return rows


class _Searched:
    """Seconds and BLEU of searches, by the number of beams."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.bleu: dict[str, float] = {}

    @contextmanager
    def timing(self, beam: int, pairs: list[tuple[str, str]]) -> Iterator[list[str]]:
        """Time a search, whose answers are put into the list that is yielded."""
        answers: list[str] = []
        began = time.perf_counter()
        yield answers
        self.seconds[str(beam)] = time.perf_counter() - began
        self.bleu[str(beam)] = _bleu(answers, pairs)


def _load(folder: Path) -> Any:
    from regard.api import load

    return load(folder)


def _speeds(drawn: list[tuple[float, int]]) -> list[float]:
    """Return tokens a second of every few steps, from when each batch was drawn and how many tokens it has."""
    marks = range(0, len(drawn) - EVERY, EVERY)
    return [
        sum(tokens for _, tokens in drawn[begin : begin + EVERY]) / (drawn[begin + EVERY][0] - drawn[begin][0])
        for begin in marks
    ]


def _bleu(found: list[str], pairs: list[tuple[str, str]]) -> float:
    from regard.evaluation import bleu

    return bleu(found, [target for _, target in pairs], lowercase=True)


def _parameters(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    main()
