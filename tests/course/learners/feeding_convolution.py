from torch import nn


class FeedForward(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.a = nn.Conv1d(width, inner, 1)
        self.b = nn.Conv1d(inner, width, 1)

    def forward(self, x):
        return self.b(self.a(x.transpose(1, 2)).relu()).transpose(1, 2)
