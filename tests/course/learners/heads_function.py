import torch


def multi_head_attention(query, key, value, w_q, w_k, w_v, w_o, heads, mask=None):
    B, Tq, D = query.shape
    Tk = key.shape[1]
    d = D // heads
    q = (query @ w_q).view(B, Tq, heads, d).transpose(1, 2)
    k = (key @ w_k).view(B, Tk, heads, d).transpose(1, 2)
    v = (value @ w_v).view(B, Tk, heads, d).transpose(1, 2)
    att = q @ k.transpose(2, 3) / d**0.5
    if mask is not None:
        m = mask.unsqueeze(1)
        att = att.masked_fill(m == 0, -1e9)
    att = torch.softmax(att, -1)
    if mask is not None:
        att = att * m
    y = (att @ v).transpose(1, 2).reshape(B, Tq, D)
    return y @ w_o
