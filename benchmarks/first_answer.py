"""Measure size and CPU time of the explorer's first response for a long text.

    python benchmarks/first_answer.py [--tokens 200] [--layers 6] [--heads 12]

A BERT with random weights and the width of MiniLM (384) reads a text through `/api/attend`. The program prints
the bytes of three responses: thumbnails of all layers, as the page requests them, all layers complete, and all
weights as numbers in JSON. CPU time is the time of the process for one request in one thread,
as in `regard look`. The program prints the median of nine requests.
"""

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np
import orjson
import torch
import transformers
from starlette.testclient import TestClient
from tokenizers import Tokenizer, models, pre_tokenizers

import regard
from regard.server.app import BINARY, make_app
from regard.server.explorer import Explorer
from regard.viz.page import LEVELS, map_data, zlib_text

ROUNDS = 9
WORDS = 500


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("tokens", 200), ("layers", 6), ("heads", 12)):
        parser.add_argument(f"--{name}", type=int, default=value)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    text = " ".join(f"w{number}" for number in np.random.default_rng(0).integers(0, WORDS, flags.tokens))
    subject = regard.look(make_model(flags.layers, flags.heads), make_tokenizer())
    with TestClient(make_app(Explorer(subject)), base_url="http://localhost") as client:
        seconds = []
        for _ in range(ROUNDS):
            began = time.process_time()
            response = client.post("/api/attend", json={"input": text}, headers={"accept": BINARY})
            seconds.append(time.process_time() - began)
            response.raise_for_status()
    began = time.process_time()
    attention = subject.attend(text)
    model = time.process_time() - began
    whole = orjson.dumps(map_data(attention, LEVELS), default=zlib_text)
    numbers = orjson.dumps(map_data(attention), option=orjson.OPT_SERIALIZE_NUMPY)
    figures = {
        "tokens": len(next(iter(attention.layers.values())).query_labels),
        "layers x heads": f"{flags.layers} x {flags.heads}",
        "MB": round(int(response.headers["content-length"]) / 1e6, 2),
        "MB, all layers whole": round(len(whole) / 1e6, 2),
        "MB, numbers": round(len(numbers) / 1e6, 2),
        "CPU ms": round(1000 * statistics.median(seconds)),
        "CPU ms of the model": round(1000 * model),
    }
    print(json.dumps(figures))


def make_model(layers: int, heads: int, *, longest: int = 2048, decoder: bool = False) -> torch.nn.Module:
    """Build a BERT, or a GPT-2, whose attention weights differ between keys."""
    width = -(-384 // heads) * heads
    config: Any = (
        transformers.GPT2Config(vocab_size=WORDS, n_embd=width, n_layer=layers, n_head=heads, n_positions=longest)
        if decoder
        else transformers.BertConfig(
            vocab_size=WORDS,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * width,
            max_position_embeddings=longest,
        )
    )
    model = transformers.GPT2LMHeadModel(config) if decoder else transformers.BertModel(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=1.2 * parameter[0].numel() ** -0.5)
    return model.eval()


def make_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are the words w0, w1, ..."""
    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(WORDS)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0")


if __name__ == "__main__":
    main()
