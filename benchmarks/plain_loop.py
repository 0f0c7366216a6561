"""A direct PyTorch implementation of the primer's tasks: the eager baseline of `primer.py`.

The program uses NumPy one-hot samples, an explicit softmax, and PyTorch's default Adam (not fused) at the
primer's constant rate. The program shares no code with Regard.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

TASKS: dict[str, dict[str, Any]] = {
    "counting": {"letters": 4, "signals": 0, "outputs": 3, "lr": 1e-2},
    "difference": {"letters": 4, "signals": 0, "outputs": 4, "lr": 1e-2, "self_att": True},
    "signal": {"letters": 3, "signals": 1, "outputs": 1, "lr": 1e-3, "encoder": True},
    "signal2": {"letters": 3, "signals": 3, "outputs": 3, "lr": 1e-3, "encoder": True, "heads": 4},
}
MAX_LEN, HIDDEN = 10, 64


def next_batch(task: str, size: int, random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Draw one-hot inputs (B, T, letters) and targets (B, To)."""
    spec = TASKS[task]
    letters = random.integers(spec["letters"], size=(size, spec["signals"] + MAX_LEN))
    one_hot = np.eye(spec["letters"], dtype=np.float32)[letters]
    if spec["signals"]:
        signals, rest = letters[:, : spec["signals"]], letters[:, spec["signals"] :]
        targets = (signals[:, :, None] == rest[:, None, :]).sum(-1)
    else:
        targets = one_hot.sum(1)[:, 1:].astype(np.int64)
        if task == "difference":
            targets = np.concatenate([targets, np.abs(targets[:, :1] - targets[:, 1:2])], axis=1)
    return torch.from_numpy(one_hot), torch.from_numpy(targets)


class PlainAttention(nn.Module):
    """Attention, residual connection and normalization; `heads=0` means one head without projections."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        if heads:
            shape = (heads, HIDDEN, HIDDEN // heads)
            self.query, self.key, self.value = (nn.Parameter(torch.randn(shape) * 1e-2) for _ in range(3))
            self.output = nn.Parameter(torch.randn(HIDDEN, HIDDEN) * 1e-2)
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, query: Tensor, memory: Tensor) -> Tensor:
        """Attend from query (B, Tq, D) to memory (B, Tk, D)."""
        if self.heads:
            q = torch.matmul(query.unsqueeze(1), self.query)
            k = torch.matmul(memory.unsqueeze(1), self.key)
            v = torch.matmul(memory.unsqueeze(1), self.value)
        else:
            q, k, v = query, memory, memory
        weights = torch.softmax(torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1]), dim=-1)
        context = torch.matmul(weights, v)
        if self.heads:
            context = torch.matmul(torch.cat(context.unbind(1), dim=-1), self.output)
        return self.norm(context + query)


class PlainModel(nn.Module):
    """The query model of a task."""

    def __init__(self, task: str) -> None:
        super().__init__()
        spec = TASKS[task]
        heads = spec.get("heads", 0)
        self.embed = nn.Linear(spec["letters"], HIDDEN)
        self.query = nn.Parameter(torch.zeros(1, spec["outputs"], HIDDEN))
        self.encoder = spec.get("encoder", False)
        if self.encoder:
            self.positions = nn.Parameter(torch.zeros(1, spec["signals"] + MAX_LEN, HIDDEN))
            self.self_attention = PlainAttention(heads)
            self.inner, self.outer = nn.Linear(HIDDEN, 2 * HIDDEN), nn.Linear(2 * HIDDEN, HIDDEN)
            self.norm = nn.LayerNorm(HIDDEN)
        self.cross = PlainAttention(heads)
        self.output_attention = PlainAttention(0) if spec.get("self_att") else None
        self.output = nn.Linear(HIDDEN, MAX_LEN + 1)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits (B, To, classes) for one-hot inputs (B, T, letters)."""
        memory = self.embed(inputs)
        if self.encoder:
            memory = memory + self.positions
            memory = self.self_attention(memory, memory)
            memory = self.norm(memory + self.outer(torch.relu(self.inner(memory))))
        states = self.cross(self.query.repeat(len(inputs), 1, 1), memory)
        if self.output_attention is not None:
            states = self.output_attention(states, states)
        return self.output(states)


def train(task: str, seed: int) -> Iterator[PlainModel]:
    """Train without a limit; yield the model after each step."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    model = PlainModel(task)
    optimizer = torch.optim.Adam(model.parameters(), lr=TASKS[task]["lr"], fused=False, foreach=False)
    while True:
        inputs, targets = next_batch(task, 100, random)
        logits = model(inputs)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield model
