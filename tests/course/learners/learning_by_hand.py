import numpy as np
import torch


def label_smoothed_loss(logits, target, smoothing, padding=0):
    V = logits.shape[1]
    z = logits - logits.max(1, keepdims=True)
    logp = z - np.log(np.exp(z).sum(1, keepdims=True))
    q = np.full(logits.shape, smoothing / V)
    q[np.arange(len(target)), target] += 1 - smoothing
    losses = -(q * logp).sum(1)
    keep = target != padding
    return losses[keep].sum() / keep.sum()


def train_copy(model, batches):
    parameters = list(model.parameters())
    opt = torch.optim.AdamW(parameters, lr=0.005, weight_decay=0.0)
    for source, target in batches:
        opt.zero_grad()
        guess = torch.log_softmax(model(source, target[:, :-1]), dim=-1)
        answers = target[:, 1:]
        nll = -guess.gather(-1, answers.unsqueeze(-1)).squeeze(-1)
        words = answers != 0
        loss = nll[words].sum() / words.sum()
        loss.backward()
        opt.step()
