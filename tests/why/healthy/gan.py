"""A generative adversarial network on points of a circle."""

import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
discriminator = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
bce = nn.BCEWithLogitsLoss()
for step in range(3):
    angle = 6.28 * torch.rand(8)
    real = torch.stack([angle.cos(), angle.sin()], 1)
    fake = generator(torch.randn(8, 4))
    opt_d.zero_grad()
    loss_d = bce(discriminator(real), torch.ones(8, 1)) + bce(discriminator(fake.detach()), torch.zeros(8, 1))
    loss_d.backward()
    opt_d.step()
    opt_g.zero_grad()
    loss_g = bce(discriminator(fake), torch.ones(8, 1))
    loss_g.backward()
    opt_g.step()
    print(step, loss_d.item(), loss_g.item())
