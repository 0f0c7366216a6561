import torch
import torch.nn.functional as F
from torch import nn


class ScaledDotProductAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.1)

    def forward(self, query, key, value, mask=None):
        logits = torch.bmm(query, key.transpose(1, 2)) * query.shape[-1] ** -0.5
        if mask is not None:
            logits = logits + torch.zeros_like(logits).masked_fill(mask.logical_not(), -1e9)
        probabilities = F.softmax(logits, dim=2)
        if mask is not None:
            probabilities = probabilities.masked_fill(mask.logical_not(), 0.0)
        return torch.bmm(self.dropout(probabilities), value), probabilities


class Score(nn.Module):
    def forward(self, query, key):
        return torch.baddbmm(torch.zeros(1), query, key.permute(0, 2, 1), beta=0, alpha=1 / float(key.shape[2]) ** 0.5)


class MaskedSoftmax(nn.Module):
    def forward(self, scores, mask):
        lowest = torch.finfo(scores.dtype).min
        return torch.where(mask, torch.where(mask, scores, lowest).softmax(-1), 0.0)
