"""Shared settings of the benchmarks on Multi30k: files, model sizes, and the models of other libraries."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flags import multi30k
from peers import joeynmt_config, joeynmt_text, peers_parser

SIZES: dict[str, Any] = {
    "hidden": 128,
    "heads": 4,
    "inner": 256,
    "enc_layers": 4,
    "dec_layers": 4,
    "dropout": 0.2,
    "positions": "sinusoidal",
}
TOKENS, SYMBOLS, SMOOTHING = 4096, 12_000, 0.1
POSITIONS = 512
"""Number of positions of MarianMT."""
BATCH = 64
"""Sentences per batch."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Settings shared by all programs of a comparison."""

    data: Path
    """Folder of Multi30k's files."""
    folder: Path
    """Folder of files that all programs use."""
    threads: int
    steps: int
    """Timed training steps."""
    model: Path
    """Run whose weights all programs use."""


def files(data: Path, languages: tuple[str, str] = ("de", "en")) -> dict[str, tuple[str, str]]:
    """Return the source and target file of each part."""
    parts = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
    source, target = languages
    return {
        part: (str(data / f"{name}.{source}.gz"), str(data / f"{name}.{target}.gz")) for part, name in parts.items()
    }


def multi30k_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the flags of all comparisons with JoeyNMT on Multi30k."""
    flags = peers_parser(description)
    flags.add_argument("data", type=multi30k, help="folder of Multi30k's files")
    return flags


def texts(data: Path, part: str) -> list[tuple[str, str]]:
    """Return the pairs of one part."""
    from regard.data.parallel import ParallelText

    return list(ParallelText(files(data)[part]))


def marian(symbols: int) -> Any:
    """Return a randomly initialized MarianMT of Hugging Face with the sizes of all programs."""
    from transformers import MarianConfig, MarianMTModel

    from regard.data.vocabulary import BOS, EOS, PAD

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


def joeynmt_files(
    here: Path, data: Path, vocabulary: Any, threads: int, *, validated: int | None = None
) -> dict[str, Any]:
    """Write the text as subword tokens, and return a JoeyNMT configuration without a training schedule.

    `validated`: largest number of validation pairs.
    """

    def cut(text: str) -> str:
        return " ".join(vocabulary.labels(vocabulary.encode(text)))

    for split, part in (("train", "train"), ("dev", "valid"), ("test", "test")):
        pairs = texts(data, part)[: validated if part == "valid" else None]
        joeynmt_text(here, split, ((cut(source), cut(target)) for source, target in pairs))
    symbols = ["<unk>", "<pad>", "<s>", "</s>", *vocabulary.symbols[4:]]
    (here / "symbols.txt").write_text("".join(f"{symbol}\n" for symbol in symbols))
    layer = {"type": "transformer", "hidden_size": SIZES["hidden"], "ff_size": SIZES["inner"]}
    layer |= {"num_heads": SIZES["heads"], "dropout": SIZES["dropout"], "layer_norm": "pre"}
    embeddings = {"embeddings": {"embedding_dim": SIZES["hidden"], "scale": True, "dropout": 0.0}}
    side = {"level": "word", "max_length": 256, "voc_file": str(here / "symbols.txt")}
    return {
        **joeynmt_config(here, threads, side),
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


def train(data: Path, runs: Path, languages: tuple[str, str], flags: dict[str, Any]) -> Any:
    """Train or continue a lowercase run of Regard, in a folder named after the flags, and return the run."""
    import regard
    from regard.training.run_folder import RunFolder

    folder = runs / ",".join(["-".join(languages), *(f"{name}={value}" for name, value in flags.items())])
    if RunFolder(folder / "translation").exists():
        return regard.train("translation", resume=True, savepath=folder, progress=False)
    text: dict[str, Any] = dict(files(data, languages))
    return regard.train("translation", **text, **flags, lowercase=True, savepath=folder, progress=False)


def best_validation(run: Any) -> float:
    """Return the best validation BLEU of a run, which is the BLEU of the stored model."""
    return max(line["bleu"] for line in run.metrics if "bleu" in line)


def load_run(folder: Path) -> Any:
    """Return a run of Regard."""
    from regard.runs.loading import load

    return load(folder)
