import torch
import torch.nn.functional as F


def train_copy(model, batches):
    """A new optimizer for each batch is right if it has no state."""
    for source, target in batches:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.zero_grad()
        logits = model(source, target[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0).backward()
        optimizer.step()
