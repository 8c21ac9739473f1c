"""A physics-informed network for u'' + u = 0."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(2):
    t = torch.rand(10, 1, requires_grad=True)
    u = net(t)
    du = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)[0]
    ddu = torch.autograd.grad(du, t, torch.ones_like(du), create_graph=True)[0]
    start = torch.zeros(1, 1, requires_grad=True)
    u0 = net(start)
    v0 = torch.autograd.grad(u0, start, torch.ones_like(u0), create_graph=True)[0]
    loss = (ddu + u).pow(2).mean() + (u0 - 1).pow(2).sum() + v0.pow(2).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
