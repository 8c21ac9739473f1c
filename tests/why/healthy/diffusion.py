"""Denoising diffusion with an exponential moving average of the weights."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
beta = torch.linspace(1e-4, 0.02, 50)
alpha_bar = torch.cumprod(1 - beta, 0)
net = nn.Sequential(nn.Linear(3, 32), nn.SiLU(), nn.Linear(32, 2))
average = copy.deepcopy(net).requires_grad_(False)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _ in range(3):
    x = torch.randn(16, 2)
    t = torch.randint(0, 50, (16,))
    noise = torch.randn_like(x)
    a = alpha_bar[t][:, None]
    noisy = a.sqrt() * x + (1 - a).sqrt() * noise
    guess = net(torch.cat([noisy, t[:, None] / 50], 1))
    loss = ((guess - noise) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(average.parameters(), net.parameters()):
            slow.lerp_(fast, 0.01)
