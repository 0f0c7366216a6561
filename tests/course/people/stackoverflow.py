"""Files in the style of questions and answers on Stack Overflow: short, with names of all kinds."""

from tests.course.people.submission import Submission, edit

NUMPY_ATTENTION = """
import numpy as np

def softmax(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)

def attention(Q, K, V, mask=None):
    dk = K.shape[-1]
    scores = np.matmul(Q, K.transpose(0, 2, 1)) / np.sqrt(dk)
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    attn = softmax(scores, axis=-1)
    if mask is not None:
        attn = np.where(mask.any(-1, keepdims=True), attn, 0.0)
    return np.matmul(attn, V), attn
"""

TORCH_ATTENTION = """
import torch
import torch.nn.functional as F
from math import sqrt

def scaled_dot_product_attention(query, key, value, mask=None):
    dim_k = query.size(-1)
    scores = torch.bmm(query, key.transpose(1, 2)) / sqrt(dim_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = F.softmax(scores, dim=-1)
    weights = torch.nan_to_num(weights)
    return torch.bmm(weights, value), weights
"""

SAFE_SOFTMAX = """
import torch

def masked_softmax(scores, mask):
    big_negative = torch.finfo(scores.dtype).min
    w = torch.softmax(scores.masked_fill(~mask, big_negative), dim=-1)
    return w * mask
"""

POSITIONS = """
import numpy as np

def positional_encoding(length, width):
    pos = np.arange(length)[:, np.newaxis]
    i = np.arange(width)[np.newaxis, :]
    angle_rates = 1 / np.power(10000, (2 * (i // 2)) / np.float32(width))
    angle_rads = pos * angle_rates
    angle_rads[:, 0::2] = np.sin(angle_rads[:, 0::2])
    angle_rads[:, 1::2] = np.cos(angle_rads[:, 1::2])
    return angle_rads
"""

LOSS = """
import torch
import torch.nn as nn

def label_smoothed_loss(logits, target, smoothing, padding=0):
    logp = torch.log_softmax(logits, dim=-1)
    nll = -logp.gather(1, target.unsqueeze(1)).squeeze(1)
    smooth = -logp.mean(dim=-1)
    loss = (1 - smoothing) * nll + smoothing * smooth
    keep = target != padding
    return loss[keep].mean()
"""

BEAM = """
def beam_search(step, start, end, width, longest, alpha):
    sequences = [([start], 0.0)]
    for _ in range(longest):
        all_candidates = []
        for seq, score in sequences:
            if seq[-1] == end and len(seq) > 1:
                all_candidates.append((seq, score))
                continue
            row = step(seq)
            for j in range(len(row)):
                all_candidates.append((seq + [j], score + float(row[j])))
        ordered = sorted(all_candidates, key=lambda tup: tup[1], reverse=True)
        sequences = ordered[:width]
        if all(s[-1] == end for s, _ in sequences):
            break
    best, score = max(sequences, key=lambda t: t[1] / (len(t[0]) - 1) ** alpha)
    return best[1:], score / (len(best) - 1) ** alpha
"""

GREEDY = """
import numpy as np

def greedy_decode(step, start, end, longest):
    output = [start]
    for i in range(longest):
        logits = step(output)
        next_word = int(np.argmax(np.asarray(logits)))
        output.append(next_word)
        if next_word == end:
            break
    return output[1:]
"""

TRAIN = """
import torch
import torch.nn as nn

def train(model, batches):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss(ignore_index=0)
    model.train()
    for src, trg in batches:
        optimizer.zero_grad()
        output = model(src, trg[:, :-1])
        loss = criterion(output.reshape(-1, output.shape[-1]), trg[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
"""

RIGHT = {
    "numpy attention": Submission("attention", NUMPY_ATTENTION),
    "torch attention": Submission("attention", TORCH_ATTENTION),
    "loss": Submission("label_smoothed_loss", LOSS),
    "beam": Submission("beam_search", BEAM),
    "training": Submission("train_copy", TRAIN),
}
WRONG = {
    "softmax without an axis": Submission(
        "attention",
        edit(
            NUMPY_ATTENTION,
            ("np.max(x, axis=axis, keepdims=True)", "np.max(x)"),
            ("e.sum(axis=axis, keepdims=True)", "e.sum(axis=0)"),
        ),
        ("softmax over the batch",),
    ),
    "rows of NaN": Submission(
        "attention",
        edit(TORCH_ATTENTION, ("    weights = torch.nan_to_num(weights)\n", "")),
        ("NaN in fully masked rows",),
    ),
    "true means masked": Submission(
        "masked_softmax", edit(SAFE_SOFTMAX, ("~mask", "mask"), ("w * mask", "w * ~mask")), ("mask inverted",)
    ),
    "angle of each column": Submission(
        "sinusoidal_positions",
        edit(POSITIONS, ("(2 * (i // 2))", "(2 * i)")),
        ("the exponent grows with each column: 2 i with i the column",),
    ),
    "halves": Submission(
        "sinusoidal_positions",
        edit(
            POSITIONS,
            ("(2 * (i // 2)) / np.float32(width)", "2 * (i % (width // 2)) / np.float32(width)"),
            ("    angle_rads[:, 0::2] = np.sin(angle_rads[:, 0::2])\n", "    h = width // 2\n"),
            (
                "    angle_rads[:, 1::2] = np.cos(angle_rads[:, 1::2])\n    return angle_rads",
                "    return np.concatenate([np.sin(angle_rads[:, :h]), np.cos(angle_rads[:, h:])], axis=-1)",
            ),
        ),
        ("sines and then cosines",),
    ),
    "smoothing over the other classes": Submission(
        "label_smoothed_loss",
        """
import torch

def label_smoothed_loss(logits, target, smoothing, padding=0):
    n_class = logits.size(1)
    one_hot = torch.zeros_like(logits).scatter(1, target.view(-1, 1), 1)
    one_hot = one_hot * (1 - smoothing) + (1 - one_hot) * smoothing / (n_class - 1)
    log_prb = torch.log_softmax(logits, dim=1)
    loss = -(one_hot * log_prb).sum(dim=1)
    return loss.masked_select(target.ne(padding)).mean()
""",
        ("smoothing is shared by the other V - 1 classes",),
    ),
    "padding in the mean": Submission(
        "label_smoothed_loss",
        edit(LOSS, ("return loss[keep].mean()", "return (loss * keep).mean()")),
        ("divides by all steps, also padding",),
    ),
    "shortest is best": Submission(
        "beam_search",
        edit(BEAM, ("max(sequences, key=lambda t: t[1] / (len(t[0]) - 1) ** alpha)", "sequences[0]")),
        ("returns the first of the beam by the sum, not by the normalised score",),
    ),
    "end is left out": Submission(
        "greedy_search",
        edit(
            GREEDY,
            (
                "        output.append(next_word)\n        if next_word == end:\n            break\n",
                "        if next_word == end:\n            break\n        output.append(next_word)\n",
            ),
        ),
        ("the end token is missing",),
    ),
    "gradients add up": Submission(
        "train_copy",
        edit(TRAIN, ("        optimizer.zero_grad()\n", ""), ("ignore_index=0", "")),
        ("no zero_grad", "padding is counted in the loss"),
    ),
}
