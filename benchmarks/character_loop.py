"""A plain PyTorch loop with nanoGPT's CPU settings: the baseline of `language_model.py`. The program shares no
code with Regard.

The settings are those of "i only have a macbook" in nanoGPT's README: 4 layers, 4 heads, width 128, context of 64
characters, batches of 12, 2,000 steps, AdamW (betas 0.9 and 0.99, weight decay 0.1 on matrices), warmup of 100
steps, cosine decay from 1e-3 to 1e-4, gradients clipped at norm 1, no dropout, no biases.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYERS, HEADS, WIDTH, CONTEXT, BATCH = 4, 4, 128, 64, 12
STEPS, WARMUP, RATE, LAST_RATE = 2000, 100, 1e-3, 1e-4
BETAS, WEIGHT_DECAY, CLIP = (0.9, 0.99), 0.1, 1.0


class Layer(nn.Module):
    """Causal attention and a feed-forward network, with pre-norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(WIDTH, bias=False)
        self.attend = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.project = nn.Linear(WIDTH, WIDTH, bias=False)
        self.expand = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.contract = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """Return the next states (B, T, D)."""
        batch, time, _ = states.shape
        query, key, value = (
            part.view(batch, time, HEADS, -1).transpose(1, 2)
            for part in self.attend(self.norm1(states)).split(WIDTH, dim=2)
        )
        context = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        states = states + self.project(context.transpose(1, 2).reshape(batch, time, WIDTH))
        return states + self.contract(F.gelu(self.expand(self.norm2(states))))


class PlainGPT(nn.Module):
    """Decoder-only model with learned positions and a tied output layer, initialized like GPT-2."""

    def __init__(self, symbols: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(symbols, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                last = name.endswith(("project.weight", "contract.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * LAYERS) if last else 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B, T, V) for tokens (B, T)."""
        states = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            states = layer(states)
        return F.linear(self.norm(states), self.tokens.weight)


@dataclass
class PlainTraining:
    """Training of a `PlainGPT` on character indices `train` (N,), int64."""

    train: Tensor
    symbols: int
    seed: int

    def __post_init__(self) -> None:
        torch.manual_seed(self.seed)
        self.model, self.steps_done = PlainGPT(self.symbols), 0
        self.generator = torch.Generator().manual_seed(self.seed)
        matrices = [parameter for parameter in self.model.parameters() if parameter.dim() > 1]
        vectors = [parameter for parameter in self.model.parameters() if parameter.dim() == 1]
        groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, fused=True)

    def step(self) -> Tensor:
        """Train on one batch; returns its loss in nats."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.steps_done)
        starts = torch.randint(len(self.train) - CONTEXT, (BATCH, 1), generator=self.generator)
        windows = self.train[starts + torch.arange(CONTEXT + 1)]
        logits = self.model(windows[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        self.steps_done += 1
        return loss.detach()

    @torch.no_grad()
    def validation_loss(self, text: Tensor) -> float:
        """Return the mean loss in nats over all characters of `text` (N,), in windows that do not overlap."""
        count = (len(text) - 1) // CONTEXT * CONTEXT
        inputs, targets = text[:count].view(-1, CONTEXT), text[1 : count + 1].view(-1, CONTEXT)
        losses = [
            F.cross_entropy(self.model(batch).flatten(0, 1), target.flatten(), reduction="sum").item()
            for batch, target in zip(inputs.split(64), targets.split(64), strict=True)
        ]
        return sum(losses) / count


def learning_rate(step: int) -> float:
    """Return the learning rate at a step: linear warmup, then a cosine from RATE to LAST_RATE."""
    if step < WARMUP:
        return RATE * (step + 1) / (WARMUP + 1)
    share = (step - WARMUP) / (STEPS - WARMUP)
    return LAST_RATE + 0.5 * (1 + math.cos(math.pi * share)) * (RATE - LAST_RATE)
