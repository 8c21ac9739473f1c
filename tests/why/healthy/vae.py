"""A variational autoencoder with the reparametrization trick."""

import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(12, 16)
        self.mean = nn.Linear(16, 3)
        self.log_variance = nn.Linear(16, 3)
        self.decoder = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 12))

    def forward(self, x):
        h = torch.relu(self.encoder(x))
        mean, log_variance = self.mean(h), self.log_variance(h)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(z), mean, log_variance


torch.manual_seed(0)
model = VAE()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    x = torch.rand(6, 12)
    out, mean, log_variance = model(x)
    reconstruction = F.binary_cross_entropy_with_logits(out, x, reduction="sum")
    divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
    loss = reconstruction + divergence
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
