"""A trained model as ONNX (https://onnx.ai), for programs in any language: encoder, and one step of the decoder.

The folder that is written holds `encoder.onnx` and `decoder.onnx` (see `graphs`), the vocabularies as files of
the `tokenizers` library, `config.json`, which names what goes in and what comes out, and a model card
(`README.md`) with a program that translates by them, without Regard.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.convert.certificate import Forced, token_log_probabilities
from regard.convert.exportable import Exportable
from regard.convert.graphs import graphs_of
from regard.convert.tokenizer_file import tokenizer_of
from regard.data import BOS, EOS, PAD, UNKNOWN, PairBatch
from regard.decoding import beam_search, greedy_search
from regard.decoding.hypothesis import NEVER
from regard.errors import InputError
from regard.io import write_file, write_json
from regard.io.reading import check_file
from regard.libraries import import_library, library_errors
from regard.models import Seq2Seq

USE = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
"""How the folder is used, for its model card."""
STEPS = [
    "Cut the text by source.json, add eos_token_id, and pad a batch with pad_token_id: source.",
    "Run encoder.onnx with it; of its outputs, those in state are the first state.",
    "Run decoder.onnx with the state and token, which is bos_token_id at first.",
    "Take the largest of the logits that is not in suppress_tokens: it is written, and the next token.",
    "Replace what is in the state by the output of the same name after 'next.', where there is one.",
    "Go on at the third step until eos_token_id is written; read what was written by target.json.",
]
PARTS = ("encoder", "decoder")
AGAIN = "export it anew, or try another version of the library"


def write_onnx(run: Exportable, folder: Path) -> None:
    """Write a run's model for ONNX into a folder that is there.

    Raises `InputError` where PyTorch cannot write such a model, or where the extra `onnx` is not installed;
    `MachineError` where the disk refuses.
    """
    for package in ("onnx", "onnxruntime", "onnxscript"):
        import_library(package, "exporting to ONNX", "onnx")
    tokenizers = for_onnx(run)
    try:
        encoder, decoder = graphs_of(run.model)
    except InputError as error:
        raise InputError(f"{_own_code(run)}: {error}") from error
    for name, graph in zip(PARTS, (encoder, decoder), strict=True):
        write_file(folder / f"{name}.onnx", graph.content)
    for name, tokenizer in tokenizers.items():
        write_file(folder / f"{name}.json", tokenizer.encode())
    write_json(
        folder / "config.json",
        {
            "format": "regard-onnx/1",
            "pad_token_id": PAD,
            "bos_token_id": BOS,
            "eos_token_id": EOS,
            "unk_token_id": UNKNOWN,
            "suppress_tokens": list(NEVER),
            "longest_source": run.task.longest_source,
            "longest_target": run.task.longest_target,
            "state": [name for name in decoder.inputs if name != "token"],
            "cross": [name for name in run.model.cross_layers if name in decoder.outputs],
            "encoder": {"inputs": encoder.inputs, "outputs": encoder.outputs},
            "decoder": {"inputs": decoder.inputs, "outputs": decoder.outputs},
            "greedy_search": STEPS,
        },
    )


def for_onnx(run: Exportable) -> dict[str, str]:
    """Return a run's vocabularies of source and target as files of the `tokenizers` library; raises `InputError`
    where there is no such file."""
    vocabularies = {"source": run.task.source_vocabulary, "target": run.task.target_vocabulary}
    return {name: tokenizer_of(each).to_str(pretty=True) for name, each in vocabularies.items()}


class InOnnxRuntime:
    """A folder that `write_onnx` wrote, opened in ONNX Runtime, on a CPU.

    It has no search of its own, so translations are found by ours, which goes by its steps.
    """

    program = "onnxruntime"
    missing: dict[str, str] = {}

    def __init__(self, run: Exportable, folder: Path) -> None:
        import tokenizers

        del run
        self._steps = _Steps(*(_Session(folder / f"{name}.onnx") for name in PARTS))
        check_file(folder / "source.json")
        with library_errors("tokenizers", f"{str(folder / 'source.json')!r} cannot be loaded", AGAIN):
            self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "source.json"))

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the indices of texts, without the end of sequence."""
        with library_errors("tokenizers", "source.json cannot cut these texts", AGAIN):
            return [each.ids for each in self._tokenizer.encode_batch(list(texts))]

    def force(self, batch: PairBatch) -> Forced:
        """Feed a batch's targets, one step after the other."""
        encoded = self._steps.encoder({"source": batch.source})
        state = self._steps.start(encoded)
        found = []
        for token in batch.target_in.split(1, dim=1):
            found.append(self._steps.decoder({"token": token} | state.tensors))
            state = state.after(found[-1])
        logits = torch.stack([each["logits"] for each in found], dim=1)
        weights = {name: each for name, each in encoded.items() if name not in state.tensors}
        for name, last in found[-1].items():
            if name != "logits" and not name.startswith("next."):
                keys = last.shape[-1]
                rows = [F.pad(each[name], (0, keys - each[name].shape[-1])) for each in found]
                weights[name] = torch.cat(rows, dim=2)
        return Forced(token_log_probabilities(logits, batch), logits, weights)

    def translate(self, source: Tensor, *, beam: int, most: int) -> list[list[int]]:
        """Answer sources (B, Ts) with at most `most` tokens."""
        mask = source != PAD
        if beam == 1:
            return [each.tokens for each in greedy_search(self._steps, source, mask, max_len=most)]
        found = beam_search(self._steps, source, mask, width=beam, max_len=most)
        return [best.tokens for best, *_ in found]


class _Session:
    """A graph, opened: from tensors by name to tensors by name."""

    def __init__(self, path: Path) -> None:
        onnxruntime = import_library("onnxruntime", "ONNX", "onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4  # errors are raised, and not printed a second time
        self._path = path
        check_file(path)
        with library_errors("onnxruntime", f"{str(path)!r} cannot be loaded", AGAIN):
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.inputs, self.outputs = (
            [each.name for each in side] for side in (self._session.get_inputs(), self._session.get_outputs())
        )

    def __call__(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        with library_errors("onnxruntime", f"{str(self._path)!r} cannot be run", AGAIN):
            found = self._session.run(self.outputs, {name: each.numpy() for name, each in inputs.items()})
        return {name: torch.from_numpy(each) for name, each in zip(self.outputs, found, strict=True)}


class _State(NamedTuple):
    """Between two steps, for B sources with K hypotheses each, of which every one has a row."""

    tensors: dict[str, Tensor]
    """By the decoder's names of its inputs, (B K, any) each."""
    sources: int

    def after(self, found: dict[str, Tensor]) -> "_State":
        """Return the state after a step that gave these outputs."""
        return self._replace(
            tensors={name: found.get(f"next.{name}", each) for name, each in self.tensors.items()}
        )

    def choose(self, hypotheses: Tensor) -> "_State":
        """Return the state of some hypotheses of each source, (B, K') int64."""
        return self._rows(torch.arange(self.sources), hypotheses)

    def keep(self, sources: Tensor) -> "_State":
        """Return the state of some of the sources, (B',) int64."""
        return self._rows(sources, torch.arange(self._hypotheses).expand(len(sources), -1))

    @property
    def _hypotheses(self) -> int:
        return len(next(iter(self.tensors.values()))) // self.sources

    def _rows(self, sources: Tensor, hypotheses: Tensor) -> "_State":
        rows = (sources.unsqueeze(1) * self._hypotheses + hypotheses).flatten()
        return _State({name: each.index_select(0, rows) for name, each in self.tensors.items()}, len(sources))


class _Steps(Seq2Seq):
    """A model whose steps ONNX Runtime takes, for our search."""

    def __init__(self, encoder: _Session, decoder: _Session) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def encode(self, source: Tensor, source_mask: Tensor) -> dict[str, Tensor]:
        del source_mask  # the graph knows padding
        return self.encoder({"source": source})

    def start(self, memory: dict[str, Tensor]) -> _State:
        state = {name: each for name, each in memory.items() if name in self.decoder.inputs}
        return _State(state, len(next(iter(state.values()))))

    def step(self, tokens: Tensor, state: _State) -> tuple[Tensor, _State]:
        found = self.decoder({"token": tokens.reshape(-1, 1)} | state.tensors)
        return found["logits"].view(*tokens.shape, -1), state.after(found)

    def logits(self, states: Tensor) -> Tensor:
        return states

    @property
    def vocabulary_layer(self) -> tuple[Tensor, Tensor | None]:
        return torch.empty(0), None  # it is in the graph


def _own_code(run: Exportable) -> str:
    """Name what of a model is a user's own code; the model itself where nothing is."""
    config: Any = run.config.model
    chosen = {"model": run.config.kind} | {
        name: getattr(config, name, "") for name in ("positions", "score", "layer")
    }
    return ", ".join(f"{name} {value}" for name, value in chosen.items() if ":" in str(value)) or (
        f"model {run.config.kind}"
    )
