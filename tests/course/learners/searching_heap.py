import heapq

import torch


def greedy(step, start, end, longest):
    found = []
    while len(found) < longest and end not in found:
        found.append(step([start] + found).argmax().item())
    return torch.tensor(found)


def beam_search(step, start, end, width, longest, alpha):
    live, done = [(0.0, ())], []
    for _ in range(longest):
        pool = list(done)
        for total, tokens in live:
            values, tokens_next = step([start, *tokens]).topk(min(width, len(step([start]))))
            pool += [(total + v.item(), (*tokens, t.item())) for v, t in zip(values, tokens_next)]
        best = heapq.nlargest(width, pool)
        done = [b for b in best if b[1][-1] == end]
        live = [b for b in best if b[1][-1] != end]
        if not live:
            break
    total, tokens = max(done + live, key=lambda b: b[0] / len(b[1]) ** alpha)
    return list(tokens), total / len(tokens) ** alpha
