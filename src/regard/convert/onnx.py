"""Export to ONNX (https://onnx.ai): an encoder graph, and a graph of one decoder step.

The exported folder contains `encoder.onnx` and `decoder.onnx` (see `onnx_graphs`), the vocabularies as files of
the `tokenizers` library, `config.json` with the names of all inputs and outputs, and a model card (`README.md`)
with a program that translates without Regard.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor

from regard.convert.certificate import token_log_probabilities
from regard.convert.conversion import ForcedOutput, token_names
from regard.convert.exportable import Exportable
from regard.convert.onnx_graphs import trace_graphs
from regard.data import BOS, EOS, PAD, UNKNOWN, CharacterVocabulary, PairBatch, Vocabulary, WordVocabulary
from regard.data.bpe_codes import BpeCodesVocabulary
from regard.data.sentencepieces import SentencePieceVocabulary
from regard.data.subwords import RESERVED, SubwordVocabulary
from regard.decoding import beam_search, greedy_search
from regard.decoding.extensions import NEVER
from regard.errors import InputError
from regard.io import write_file, write_json
from regard.io.reading import check_file
from regard.libraries import import_library, library_errors
from regard.models import Seq2Seq

USE = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
"""Instructions for use in the model card."""
STEPS = [
    "Tokenize the text with source.json, append eos_token_id, and pad a batch with pad_token_id; the result "
    "is `source`.",
    "Run encoder.onnx on source; the outputs listed under state in config.json are the initial state.",
    "Run decoder.onnx on the state and token, which is bos_token_id at first.",
    "The next token of the output is the token with the largest logit that is not in suppress_tokens.",
    "Replace each tensor of the state with the output of the same name with prefix 'next.', if it exists.",
    "Repeat from the third step until eos_token_id; decode the output with target.json.",
]
PARTS = ("encoder", "decoder")
AGAIN = "export it again, or try another version of the library"


def write_onnx(run: Exportable, folder: Path) -> None:
    """Write a run's model as ONNX to an existing folder.

    Raises `InputError` if PyTorch cannot export the model, or if the extra `onnx` is not installed. Raises
    `MachineError` if the disk cannot be written.
    """
    for package in ("onnx", "onnxruntime", "onnxscript"):
        import_library(package, "exporting to ONNX", "onnx")
    tokenizers = make_onnx_tokenizers(run)
    try:
        encoder, decoder = trace_graphs(run.model)
    except InputError as error:
        raise InputError(f"{_describe_model(run)}: {error}") from error
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


def make_onnx_tokenizers(run: Exportable) -> dict[str, str]:
    """Return the source and the target vocabulary as JSON of the `tokenizers` library.

    Raises `InputError` if the library does not support a vocabulary.
    """
    vocabularies = {"source": run.task.source_vocabulary, "target": run.task.target_vocabulary}
    return {name: make_tokenizer(vocabulary).to_str(pretty=True) for name, vocabulary in vocabularies.items()}


def make_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """Return a tokenizer of the `tokenizers` library with the same encoding and decoding as `vocabulary`.

    The tokenizer adds no end of sequence. Raises `InputError` for vocabularies of imported models, for which
    the library `tokenizers` returns other tokens.
    """
    if isinstance(vocabulary, SentencePieceVocabulary):
        raise InputError(
            "tokenizer sentencepiece is not supported by the tokenizers library: "
            "export to ctranslate2 or huggingface"
        )
    if isinstance(vocabulary, BpeCodesVocabulary):
        raise InputError("tokenizer codes is not supported by the tokenizers library: export to ctranslate2")
    if isinstance(vocabulary, SubwordVocabulary):
        return Tokenizer.from_str(vocabulary.to_json())
    assert isinstance(vocabulary, CharacterVocabulary)  # WordVocabulary is a subclass
    indices = {symbol: index for index, symbol in enumerate(token_names(vocabulary))}
    tokenizer = Tokenizer(models.WordLevel(indices, unk_token=RESERVED[UNKNOWN]))
    if isinstance(vocabulary, WordVocabulary):
        # Text must not contain reserved symbols.
        tokenizer.normalizer = normalizers.Replace(Regex(r"(?<!\S)<(pad|s|/s)>(?!\S)"), RESERVED[UNKNOWN])
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        tokenizer.decoder = decoders.Fuse()
    return tokenizer


class OnnxRuntimeModel:
    """A folder written by `write_onnx`, opened in ONNX Runtime on the CPU.

    ONNX Runtime has no search, so Regard's search calls its decoder steps.
    """

    program = "onnxruntime"
    missing: dict[str, str] = {}

    def __init__(self, run: Exportable, folder: Path) -> None:
        import tokenizers

        del run
        self._steps = _OnnxSeq2Seq(*(_Session(folder / f"{name}.onnx") for name in PARTS))
        check_file(folder / "source.json")
        with library_errors("tokenizers", f"{str(folder / 'source.json')!r} cannot be loaded", AGAIN):
            self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "source.json"))

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts, without the end of sequence."""
        with library_errors("tokenizers", "source.json cannot tokenize these texts", AGAIN):
            return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]

    def force(self, batch: PairBatch) -> ForcedOutput:
        """Run the model on a batch with forced targets, step by step."""
        encoded = self._steps.encoder({"source": batch.source})
        state = self._steps.start(encoded)
        steps = []
        for token in batch.target_in.split(1, dim=1):
            steps.append(self._steps.decoder({"token": token} | state.tensors))
            state = state.after(steps[-1])
        logits = torch.stack([step["logits"] for step in steps], dim=1)
        weights = {name: tensor for name, tensor in encoded.items() if name not in state.tensors}
        for name, last in steps[-1].items():
            if name != "logits" and not name.startswith("next."):
                keys = last.shape[-1]
                rows = [F.pad(step[name], (0, keys - step[name].shape[-1])) for step in steps]
                weights[name] = torch.cat(rows, dim=2)
        return ForcedOutput(token_log_probabilities(logits, batch), logits, weights)

    def translate(self, source: Tensor, *, beam: int, most: int) -> list[list[int]]:
        """Translate sources (B, Ts) to at most `most` tokens."""
        mask = source != PAD
        if beam == 1:
            return [candidate.tokens for candidate in greedy_search(self._steps, source, mask, max_len=most)]
        ranked = beam_search(self._steps, source, mask, width=beam, max_len=most)
        return [best.tokens for best, *_ in ranked]


class _Session:
    """An opened graph, called with tensors by name and returning tensors by name."""

    def __init__(self, path: Path) -> None:
        onnxruntime = import_library("onnxruntime", "ONNX", "onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4  # errors are raised, so do not print them too
        self._path = path
        check_file(path)
        with library_errors("onnxruntime", f"{str(path)!r} cannot be loaded", AGAIN):
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.inputs, self.outputs = (
            [tensor.name for tensor in side] for side in (self._session.get_inputs(), self._session.get_outputs())
        )

    def __call__(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        with library_errors("onnxruntime", f"{str(self._path)!r} cannot be run", AGAIN):
            arrays = self._session.run(self.outputs, {name: tensor.numpy() for name, tensor in inputs.items()})
        return {name: torch.from_numpy(array) for name, array in zip(self.outputs, arrays, strict=True)}


class _State(NamedTuple):
    """Decoder state for B sources with K hypotheses each; every hypothesis has one row."""

    tensors: dict[str, Tensor]
    """Tensors (B K, any), by the names of the decoder's inputs."""
    sources: int

    def after(self, outputs: dict[str, Tensor]) -> "_State":
        """Return the state after a step with these outputs."""
        return self._replace(
            tensors={name: outputs.get(f"next.{name}", tensor) for name, tensor in self.tensors.items()}
        )

    def choose(self, hypotheses: Tensor) -> "_State":
        """Select hypotheses of each source, (B, K') int64."""
        return self._rows(torch.arange(self.sources), hypotheses)

    def keep(self, sources: Tensor) -> "_State":
        """Select sources, (B',) int64."""
        return self._rows(sources, torch.arange(self._hypotheses).expand(len(sources), -1))

    @property
    def _hypotheses(self) -> int:
        return len(next(iter(self.tensors.values()))) // self.sources

    def _rows(self, sources: Tensor, hypotheses: Tensor) -> "_State":
        rows = (sources.unsqueeze(1) * self._hypotheses + hypotheses).flatten()
        return _State({name: tensor.index_select(0, rows) for name, tensor in self.tensors.items()}, len(sources))


class _OnnxSeq2Seq(Seq2Seq):
    """A model computed by ONNX Runtime, for Regard's search."""

    def __init__(self, encoder: _Session, decoder: _Session) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def encode(self, source: Tensor, source_mask: Tensor) -> dict[str, Tensor]:
        del source_mask  # the graph computes the mask itself
        return self.encoder({"source": source})

    def start(self, memory: dict[str, Tensor]) -> _State:
        state = {name: tensor for name, tensor in memory.items() if name in self.decoder.inputs}
        return _State(state, len(next(iter(state.values()))))

    def step(self, tokens: Tensor, state: _State) -> tuple[Tensor, _State]:
        outputs = self.decoder({"token": tokens.reshape(-1, 1)} | state.tensors)
        return outputs["logits"].view(*tokens.shape, -1), state.after(outputs)

    def logits(self, states: Tensor) -> Tensor:
        return states

    @property
    def vocabulary_layer(self) -> tuple[Tensor, Tensor | None]:
        return torch.empty(0), None  # the layer is part of the graph


def _describe_model(run: Exportable) -> str:
    """Return the names of a model's custom classes, or the name of the model if it has no custom classes."""
    config: Any = run.config.model
    chosen = {"model": run.config.kind} | {
        name: getattr(config, name, "") for name in ("positions", "score", "layer", "attention")
    }
    return ", ".join(f"{name} {value}" for name, value in chosen.items() if ":" in str(value)) or (
        f"model {run.config.kind}"
    )
