"""Measure the search speed of Regard, JoeyNMT 2.3, Hugging Face's MarianMT and CTranslate2, for translation.py.

All programs translate test_2016_flickr with the same weights, from a post-norm Transformer that was trained
with Regard. The translations therefore have the same length, which the equal BLEU confirms.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from markdown_tables import markdown
from multi30k import BATCH, POSITIONS, SIZES, Setting, files, joeynmt_files, joined, load_run, marian, texts
from peers import run_joeynmt

BEAMS = (1, 5)

Search = Callable[[list[str], int], list[str]]
"""A function from sources and a beam size to translations."""


def regard_search(setting: Setting) -> Search:
    """Translate with Regard."""
    trained = load_run(setting.model)
    return lambda sources, beam: trained.translate(sources, beam=beam, length_penalty=0.0, batchsize=BATCH)


def ctranslate2(setting: Setting) -> Search:
    """Translate with CTranslate2 in float32. Parallel batches are faster than one batch on all threads."""
    import ctranslate2 as peer
    import tokenizers

    from regard.convert.exchange import export

    exported = setting.folder / "exported"
    if not exported.exists():
        export(load_run(setting.model), exported)
    tokenizer = tokenizers.Tokenizer.from_file(str(exported / "source.json"))
    translator = peer.Translator(str(exported), compute_type="float32", inter_threads=setting.threads, intra_threads=1)

    def search(sources: list[str], beam: int) -> list[str]:
        tokens = [encoding.tokens for encoding in tokenizer.encode_batch(sources)]
        results = translator.translate_batch(
            tokens, beam_size=beam, max_batch_size=BATCH, disable_unk=True, length_penalty=0.0
        )
        return ["".join(result.hypotheses[0]).replace("▁", " ").strip() for result in results]

    return search


def hugging_face(setting: Setting) -> Search:
    """Translate with Hugging Face's MarianMT."""
    import torch
    from peer_weights import for_marian

    from regard.data.batch import collate
    from regard.data.vocabulary import PAD

    trained = load_run(setting.model)
    source, target = trained.task.source_vocabulary, trained.task.target_vocabulary
    peer = marian(len(source))
    peer.load_state_dict(for_marian(trained.model, POSITIONS))
    peer.eval()

    def search(sources: list[str], beam: int) -> list[str]:
        encoded = [source.encode(text) for text in sources]
        order = sorted(range(len(sources)), key=lambda index: len(encoded[index]))
        translations = [""] * len(sources)
        for begin in range(0, len(order), BATCH):
            rows = order[begin : begin + BATCH]
            inputs = collate([encoded[row] for row in rows])
            with torch.inference_mode():
                written = peer.generate(
                    inputs,
                    attention_mask=(inputs != PAD).long(),
                    num_beams=beam,
                    do_sample=False,
                    length_penalty=0.0,
                    early_stopping=True,
                    max_new_tokens=2 * inputs.shape[1] + 50,
                )
            for row, tokens in zip(rows, written.tolist(), strict=True):
                translations[row] = target.decode(tokens[1:])
        return translations

    return search


def time_search(program: Callable[[Setting], Search], setting: Setting) -> dict[str, Any]:
    """Return wall-clock seconds, processor seconds and BLEU by beam size.

    The processor time includes threads and forks. The second of two searches is timed; the first is a warm-up.
    """
    search, pairs = program(setting), texts(setting.data, "test")
    sources = [source for source, _ in pairs]
    seconds, processor, scores = {}, {}, {}
    for beam in BEAMS:
        search(sources, beam)
        began, busy = time.perf_counter(), sum(os.times()[:4])
        translations = search(sources, beam)
        seconds[str(beam)] = time.perf_counter() - began
        processor[str(beam)] = sum(os.times()[:4]) - busy
        scores[str(beam)] = _bleu(translations, pairs)
    return {"seconds": seconds, "processor": processor, "bleu": scores}


def joeynmt(python: Path, setting: Setting) -> dict[str, Any]:
    """Translate with JoeyNMT."""
    import torch
    from peer_weights import for_joeynmt

    trained, pairs = load_run(setting.model), texts(setting.data, "test")
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        config = joeynmt_files(here, setting.data, trained.task.source_vocabulary, setting.threads, validated=64)
        for side in ("encoder", "decoder"):
            config["model"][side]["layer_norm"] = "post"
        torch.save(for_joeynmt(trained.model, 5000), here / "weights.pt")
        results = run_joeynmt(python, here, {**config, "weights": str(here / "weights.pt")})
        bleu = {str(beam): _bleu(joined(here / f"found-{beam}.txt"), pairs) for beam in BEAMS}
        return {"seconds": results["seconds"], "bleu": bleu}


PROGRAMS = {
    "Regard": partial(time_search, regard_search),
    "Hugging Face MarianMT": partial(time_search, hugging_face),
    "CTranslate2": partial(time_search, ctranslate2),
}


def train_model(setting: Setting) -> None:
    """Train the model that all programs use; it is post-norm, like the models of the other libraries."""
    import regard

    text: dict[str, Any] = dict(files(setting.data))
    folder = setting.model.parent
    regard.train("translation", **text, **SIZES, lowercase=True, pre_norm=False, steps=6000, savepath=folder)


def table(measurements: dict[str, list[dict[str, Any]]]) -> str:
    """Return medians of all rounds in wall-clock time and in processor time, which other programs affect less."""
    rows = []
    for name, runs in measurements.items():
        cells = [name]
        for beam in map(str, BEAMS):
            for clock in ("seconds", "processor"):
                if clock not in runs[0]:  # JoeyNMT runs in a separate process
                    cells += ["", ""]
                    continue
                took, regard = (
                    statistics.median(run[clock][beam] for run in program_runs)
                    for program_runs in (runs, measurements["Regard"])
                )
                # The test set has 1,000 sentences, so seconds for the test set equal milliseconds per sentence.
                cells += [f"{1000 / took:,.0f}" if clock == "seconds" else f"{took:.2f}", f"{took / regard:.2f}"]
            cells.append(f"{runs[0]['bleu'][beam]:.1f}")
        rows.append(cells)
    heads = ["program"]
    for search in ("greedy", "beam 5"):
        heads += [
            f"{search}, sentences/s",
            "relative speed of Regard",
            "processor ms per sentence",
            "relative speed of Regard",
            "BLEU",
        ]
    return markdown(heads, rows)


def _bleu(translations: list[str], pairs: list[tuple[str, str]]) -> float:
    from regard.evaluation.bleu import quality

    return quality(translations, [target for _, target in pairs], lowercase=True).main
