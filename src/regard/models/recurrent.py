"""The recurrent encoder-decoder: a sequence is read both ways, and answered one token at a time.

memory = encoder(embedding(source))            B x Ts x D
o      = decoder(embedding(target_in), memory) B x Tt x D      see `decoder`
logits = o V + b                               B x Tt x vocabulary
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.attention import find_score
from regard.errors import check_range
from regard.models.cells import Cell
from regard.models.decoder import Memory, Place, Query, RecurrentDecoder, RecurrentState
from regard.models.encoder import RecurrentEncoder, check_width
from regard.models.seq2seq import Seq2Seq

NO_SCORE = "none"


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    """The parts of a recurrent encoder-decoder."""

    hidden: int = 128
    """Width of the decoder's state and of the memory, half of it for each direction of the encoder."""
    embedding: int = 64
    """Width of the embeddings."""
    enc_layers: int = 1
    """Layers of the encoder."""
    cell: Cell = "lstm"
    """Recurrent cell of encoder and decoder."""
    score: str = "general"
    """Score of the attention: none, dot, scaled_dot, general, concat, additive, or a class of your own as
    module:Class (see regard.attention.scores)."""
    context: Place = "output"
    """Where the context goes: into the decoder's cell (Bahdanau), to the output layer (Luong), or both."""
    query: Query | None = None
    """Which state of the decoder's cell is the query, the previous or the current one. None: the current one
    where the context goes to the output layer alone, otherwise the previous one."""
    input_feeding: bool = False
    """Feed what the output layer read to the next step's cell (Luong; with context output)."""

    def __post_init__(self) -> None:
        """Raise `InputError` where a value is out of range or values exclude each other."""
        check_width(self.hidden)
        check_range("embedding", self.embedding, 1, 65_536)
        check_range("enc_layers", self.enc_layers, 1, 100)
        if self.score != NO_SCORE:
            find_score(self.score)
        self.decoder(1, "meta")

    def decoder(self, width: int, device: str | None = None) -> RecurrentDecoder:
        """Return the decoder; `width` of the embeddings. On the device `meta` it takes no memory."""
        with torch.device(device or "cpu"):
            return RecurrentDecoder(
                width,
                self.hidden,
                self.hidden,
                cell=self.cell,
                score=None if self.score == NO_SCORE else find_score(self.score)(self.hidden),
                context=self.context,
                query=self.query or ("current" if self.context == "output" else "previous"),
                input_feeding=self.input_feeding,
            )


class RecurrentSeq2Seq(Seq2Seq):
    """See the module's docstring; its attention layer is called `decoder.cross`."""

    def __init__(self, config: RecurrentConfig, *, source_symbols: int, target_symbols: int) -> None:
        super().__init__()
        self.source_embedding = nn.Embedding(source_symbols, config.embedding)
        self.target_embedding = nn.Embedding(target_symbols, config.embedding)
        self.encoder = RecurrentEncoder(
            config.embedding, config.hidden, layers=config.enc_layers, cell=config.cell
        )
        self.decoder = config.decoder(config.embedding)
        self.output = nn.Linear(config.hidden, target_symbols)
        self.cross_layers = () if self.decoder.cross is None else ("decoder.cross",)

    def encode(self, source: Tensor, source_mask: Tensor) -> Memory:
        """Return the memory of sources (B, Ts); `source_mask` (B, Ts), True before the end."""
        states, last = self.encoder(self.source_embedding(source), source_mask)
        return self.decoder.remember(states, last, source_mask)

    def decode(self, target_in: Tensor, memory: Memory, forced: Tensor | None = None) -> Tensor:
        """Return logits (B, Tt, V), fed target_in (B, Tt).

        `forced` (B, Tt) bool: where False, the step is fed the model's own last prediction instead (Bengio et
        al. 2015, scheduled sampling; the most likely token). The first step is always fed target_in.
        """
        if forced is None or bool(forced[:, 1:].all()):
            return self.output(self.decoder(self.target_embedding(target_in), memory))
        state, token = self.decoder.start(memory), target_in[:, :1]
        logits: list[Tensor] = []
        for time in range(target_in.shape[1]):
            if time:
                own = logits[-1].argmax(-1)
                token = torch.where(forced[:, time : time + 1], target_in[:, time : time + 1], own)
            step, state = self.step(token, state)
            logits.append(step)
        return torch.cat(logits, dim=1)

    def start(self, memory: Memory) -> RecurrentState:
        """Return the state before the first step."""
        return self.decoder.start(memory)

    def step(self, tokens: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Feed one token to each hypothesis, (B, K): returns logits (B, K, V) and the state after it."""
        output, state = self.decoder.step(self.target_embedding(tokens), state)
        return self.output(output), state
