"""Meta-learning with functional inner steps."""

import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
outer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(2):
    outer.zero_grad()
    total = torch.zeros(())
    for task in range(2):
        phase = 3.14 * torch.rand(())
        x, q = torch.rand(5, 1), torch.rand(5, 1)
        weights = dict(model.named_parameters())
        inner = (functional_call(model, weights, x) - torch.sin(x + phase)).pow(2).mean()
        grads = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
        fast = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), grads)}
        total = total + (functional_call(model, fast, q) - torch.sin(q + phase)).pow(2).mean()
    total.backward()
    outer.step()
