"""A small U-Net with batch norm, skip connections and a Dice loss."""

import torch
import torch.nn.functional as F
from torch import nn


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.middle, self.up = block(1, 4), block(4, 8), block(12, 4)
        self.head = nn.Conv2d(4, 1, 1)

    def forward(self, x):
        a = self.down(x)
        b = self.middle(F.max_pool2d(a, 2))
        b = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.up(torch.cat([a, b], 1)))


torch.manual_seed(0)
model = UNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(2):
    x = torch.rand(2, 1, 8, 8)
    mask = (x > 0.5).float()
    p = torch.sigmoid(model(x))
    dice = 1 - 2 * (p * mask).sum() / (p.sum() + mask.sum() + 1e-6)
    loss = dice + F.binary_cross_entropy(p, mask)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    overlap = ((p > 0.5) == (mask > 0.5)).float().mean()
