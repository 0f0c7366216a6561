"""Files in the style of loops: lists, indices and plain arithmetic."""

from tests.course.people.submission import Submission, edit

SCORE = """
import math
import numpy as np

def score(query, key):
    B, Tq, D = query.shape
    Tk = key.shape[1]
    out = np.zeros((B, Tq, Tk))
    for b in range(B):
        for i in range(Tq):
            for j in range(Tk):
                total = 0.0
                for d in range(D):
                    total += query[b, i, d] * key[b, j, d]
                out[b, i, j] = total / math.sqrt(D)
    return out
"""

SOFTMAX = """
import math
import numpy as np

def masked_softmax(scores, mask):
    result = np.zeros(scores.shape)
    for b in range(scores.shape[0]):
        for i in range(scores.shape[1]):
            allowed = [j for j in range(scores.shape[2]) if mask[b, i, j]]
            if not allowed:
                continue
            biggest = max(scores[b, i, j] for j in allowed)
            exps = {j: math.exp(scores[b, i, j] - biggest) for j in allowed}
            total = sum(exps.values())
            for j in allowed:
                result[b, i, j] = exps[j] / total
    return result
"""

POSITIONS = """
import math
import numpy as np

def sinusoidal_positions(length, width):
    table = np.zeros((length, width))
    for pos in range(length):
        for i in range(width // 2):
            angle = pos / 10000 ** (2 * i / width)
            table[pos, 2 * i] = math.sin(angle)
            table[pos, 2 * i + 1] = math.cos(angle)
    return table
"""

CONCATENATE = (
    POSITIONS.replace("def sinusoidal_positions", "def waves")
    + """

def concatenate_positions(states, width):
    B, T, D = states.shape
    table = waves(T, width)
    out = np.zeros((B, T, D + width))
    for b in range(B):
        for t in range(T):
            out[b, t, :D] = states[b, t]
            out[b, t, D:] = table[t]
    return out
"""
)

FEED_FORWARD = """
import numpy as np

def feed_forward(states, w_1, b_1, w_2, b_2):
    out = []
    for sentence in np.asarray(states):
        rows = []
        for x in sentence:
            hidden = []
            for f in range(len(b_1)):
                h = b_1[f] + sum(x[d] * w_1[d][f] for d in range(len(x)))
                hidden.append(max(0, h))
            n = len(hidden)
            rows.append([b_2[d] + sum(hidden[f] * w_2[f][d] for f in range(n)) for d in range(len(b_2))])
        out.append(rows)
    return np.array(out)
"""

LOSS = """
import math

def label_smoothed_loss(logits, target, smoothing, padding=0):
    total, count = 0.0, 0
    for row, right in zip(logits, target):
        if right == padding:
            continue
        top = max(row)
        z = sum(math.exp(x - top) for x in row)
        loss = 0.0
        for k in range(len(row)):
            q = smoothing / len(row)
            if k == right:
                q += 1 - smoothing
            loss -= q * (row[k] - top - math.log(z))
        total += loss
        count += 1
    return total / count
"""

BEAM = """
def beam_search(step, start, end, width, longest, alpha):
    beam = [(0.0, [])]
    for _ in range(longest):
        candidates = []
        for total, tokens in beam:
            if tokens and tokens[-1] == end:
                candidates.append((total, tokens))
            else:
                logps = step([start] + tokens)
                for token in range(len(logps)):
                    candidates.append((total + float(logps[token]), tokens + [token]))
        candidates.sort(key=lambda c: -c[0])
        beam = candidates[:width]
        done = 0
        for total, tokens in beam:
            if tokens[-1] == end:
                done += 1
        if done == len(beam):
            break
    best, best_score = None, None
    for total, tokens in beam:
        s = total / len(tokens) ** alpha
        if best_score is None or s > best_score:
            best, best_score = tokens, s
    return best, best_score
"""

RIGHT = {
    "score": Submission("score", SCORE),
    "softmax": Submission("masked_softmax", SOFTMAX),
    "concatenation": Submission("concatenate_positions", CONCATENATE),
    "feed forward": Submission("feed_forward", FEED_FORWARD),
    "beam": Submission("beam_search", BEAM),
}
WRONG = {
    "number of keys": Submission(
        "score",
        edit(SCORE, ("total / math.sqrt(D)", "total / math.sqrt(Tk)")),
        ("divided by the root of the number of keys",),
    ),
    "multiplied": Submission(
        "score", edit(SCORE, ("total / math.sqrt(D)", "total * math.sqrt(D)")), ("multiplied by √D",)
    ),
    "overflow": Submission(
        "masked_softmax",
        edit(
            SOFTMAX,
            ("math.exp(scores[b, i, j] - biggest)", "np.exp(scores[b, i, j])"),
            ("            biggest = max(scores[b, i, j] for j in allowed)\n", ""),
        ),
        ("large scores overflow",),
    ),
    "sum of all keys": Submission(
        "masked_softmax",
        edit(
            SOFTMAX,
            (
                "total = sum(exps.values())",
                "total = sum(math.exp(scores[b, i, j] - biggest) for j in range(scores.shape[2]))",
            ),
            ("max(scores[b, i, j] for j in allowed)", "max(scores[b, i])"),
        ),
        ("the sum counts masked keys, as with a mask after the softmax",),
    ),
    "exponent": Submission(
        "sinusoidal_positions",
        edit(POSITIONS, ("10000 ** (2 * i / width)", "10000 ** (i / width)")),
        ("the exponent is i / width",),
    ),
    "waves in front": Submission(
        "concatenate_positions",
        edit(
            CONCATENATE,
            ("out[b, t, :D] = states[b, t]", "out[b, t, width:] = states[b, t]"),
            ("out[b, t, D:] = table[t]", "out[b, t, :width] = table[t]"),
        ),
        ("the positions stand before the states",),
    ),
    "no biases": Submission(
        "feed_forward",
        edit(
            FEED_FORWARD, ("h = b_1[f] + sum(", "h = sum("), ("[b_2[d] + sum(", "[sum("), ("max(0, h)", "abs(h)")
        ),
        ("the first bias is missing", "the second bias is missing", "the absolute value for ReLU"),
    ),
    "log to the base two": Submission(
        "label_smoothed_loss",
        edit(LOSS, ("q * (row[k] - top - math.log(z))", "q * math.log2(math.exp(row[k] - top) / z)")),
        ("bits for nats",),
    ),
    "stops at the first end": Submission(
        "beam_search",
        edit(BEAM, ("        if done == len(beam):", "        if done:")),
        ("stops when the first hypothesis has ended",),
    ),
    "length with the start": Submission(
        "beam_search",
        edit(BEAM, ("total / len(tokens) ** alpha", "total / (len(tokens) + 1) ** alpha")),
        ("the start token is counted in the length",),
    ),
}
