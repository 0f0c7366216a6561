import numpy as np


def greedy_search(step, start, end, longest):
    sequence = [start]
    for _ in range(longest):
        token = int(np.argmax(np.asarray(step(sequence))))
        sequence.append(token)
        if token == end:
            break
    return sequence[1:]


def beam_search(step, start, end, width, longest, alpha):
    beams = [([start], 0.0)]
    for _ in range(longest):
        candidates = []
        for sequence, total in beams:
            if sequence[-1] == end and len(sequence) > 1:
                candidates.append((sequence, total))
                continue
            log_probabilities = np.asarray(step(sequence))
            for token in range(len(log_probabilities)):
                candidates.append((sequence + [token], total + float(log_probabilities[token])))
        candidates.sort(key=lambda pair: pair[1], reverse=True)
        beams = candidates[:width]
        if all(sequence[-1] == end for sequence, _ in beams):
            break
    scored = [(total / (len(sequence) - 1) ** alpha, sequence) for sequence, total in beams]
    figure, sequence = max(scored)
    return sequence[1:], figure
