import torch
import torch.nn.functional as F


def logit_lens(states, norm, output):
    probabilities = []
    for state in states:
        normed = F.rms_norm(state, (state.shape[-1],), norm, 1e-5)
        probabilities.append(torch.softmax(normed @ output.T, dim=-1))
    return torch.stack(probabilities)


def sink_softmax(scores, sink):
    b, h, q, _ = scores.shape
    column = sink.view(1, h, 1, 1).expand(b, h, q, 1)
    weights = torch.cat([scores, column], dim=-1).softmax(dim=-1)
    return weights[..., :-1]


def auroc(doubts, faulty):
    order = torch.sort(doubts).values
    low = torch.searchsorted(order, doubts)
    high = torch.searchsorted(order, doubts, right=True)
    ranks = (low + high + 1) / 2
    bad = faulty.bool()
    n = bad.sum()
    return (ranks[bad].sum() - n * (n + 1) / 2) / (n * (~bad).sum())
