"""A small causal transformer."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.first, self.second = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.Dropout(0.1))

    def forward(self, x):
        q, k, v = self.qkv(self.first(x)).chunk(3, dim=-1)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        hidden = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
        x = x + self.out(scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v)
        return x + self.mlp(self.second(x))


torch.manual_seed(0)
tokens = torch.randint(0, 20, (2, 9))
embedding, positions = nn.Embedding(20, 8), nn.Embedding(8, 8)
model = nn.ModuleList([embedding, positions, Block(8), Block(8), nn.LayerNorm(8)])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(2):
    x = embedding(tokens[:, :-1]) + positions(torch.arange(8))
    for block in model[2:]:
        x = block(x)
    logits = x @ embedding.weight.T
    loss = F.cross_entropy(logits.reshape(-1, 20), tokens[:, 1:].reshape(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    accuracy = (logits.argmax(-1) == tokens[:, 1:]).float().mean().item()
