"""The flags whose default a task may choose, with their types: a task's `defaults` are some of these."""

from typing import TypedDict


class Defaults(TypedDict, total=False):
    """Flags of `regard train`, each explained by its `--help`; for tasks of their own config, its fields too."""

    model: str
    steps: int
    lr: float
    batchsize: int
    vary_len: bool
    max_len: int
    vocab_size: int
    hidden: int
    embedding: int
    heads: int
    enc_layers: int
    dec_layers: int
    inner: int
    dropout: float
    multihead: bool
    pos_enc: bool
    self_att: bool
    cell: str
    pooling: str
    score: str
    context: str
    positions: str
    pre_norm: bool
    r_drop: float
