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


def luong_step(previous, state, memory, cell, w_a, w_c, mask=None):
    h = cell(previous, state)
    e = torch.bmm(memory, (h @ w_a).unsqueeze(2)).squeeze(2)
    if mask is not None:
        e = e.masked_fill(~mask, -1e9)
    a = torch.softmax(e, dim=1)
    c = torch.bmm(a.unsqueeze(1), memory).squeeze(1)
    out = torch.tanh(torch.cat([c, h], dim=1) @ w_c)
    return out, h, a
