import torch
from torch import nn


class BahdanauStep(nn.Module):
    def __init__(self, width, memory, inner):
        super().__init__()
        self.from_state = nn.Linear(width, inner, bias=False)
        self.from_memory = nn.Linear(memory, inner, bias=False)
        self.energy = nn.Linear(inner, 1, bias=False)

    def forward(self, previous, state, memory, cell, mask=None):
        scores = self.energy(torch.tanh(self.from_state(state)[:, None] + self.from_memory(memory)))[..., 0]
        if mask is not None:
            scores = scores.masked_fill(mask.logical_not(), -torch.inf)
        weights = scores.softmax(-1)
        context = torch.einsum("bt,btm->bm", weights, memory)
        return cell(torch.cat([previous, context], -1), state), weights
