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


def fourier_power(embeddings):
    p = embeddings.shape[0]
    power = torch.fft.rfft(embeddings, dim=0).abs().pow(2).sum(dim=1)
    times = torch.full((len(power),), 2.0)
    times[0] = 1
    if p % 2 == 0:
        times[-1] = 1
    power = power * times
    return power / power.sum()


def distance_from_uniform(attention):
    mass = attention.mean((0, 1))
    return (mass - 1 / len(mass)).clamp(min=0).sum()


def auroc(doubts, faulty):
    order = torch.sort(doubts).values
    low = torch.searchsorted(order, doubts)
    high = torch.searchsorted(order, doubts, right=True)
    ranks = (low + high + 1) / 2
    bad = faulty.bool()
    n = bad.sum()
    return (ranks[bad].sum() - n * (n + 1) / 2) / (n * (~bad).sum())
