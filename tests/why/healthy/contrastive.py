"""Contrastive learning with a momentum encoder and a queue."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8))
momentum = copy.deepcopy(encoder)
for p in momentum.parameters():
    p.requires_grad_(False)
temperature = nn.Parameter(torch.tensor(0.1).log())
optimizer = torch.optim.SGD([*encoder.parameters(), temperature], lr=0.05)
queue = F.normalize(torch.randn(10, 8), dim=1)
for _ in range(3):
    x = torch.randn(4, 6)
    q = F.normalize(encoder(x + 0.1 * torch.randn_like(x)), dim=1)
    with torch.no_grad():
        for slow, fast in zip(momentum.parameters(), encoder.parameters()):
            slow.mul_(0.99).add_(fast, alpha=0.01)
        k = F.normalize(momentum(x), dim=1)
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], 1) / temperature.exp()
    loss = F.cross_entropy(logits, torch.zeros(4, dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    queue = torch.cat([k, queue])[:10]
