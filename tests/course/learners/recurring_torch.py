import torch


def bahdanau_step(previous, state, memory, cell, w, u, v, mask=None):
    energy = torch.tanh(state.unsqueeze(1) @ w + memory @ u)
    e = energy @ v
    if mask is not None:
        e = e.masked_fill(~mask, -1e9)
    alpha = e.softmax(dim=1)
    context = (alpha.unsqueeze(2) * memory).sum(1)
    new = cell(torch.cat([previous, context], dim=1), state)
    return new, alpha
