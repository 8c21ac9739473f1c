"""Policy gradients with a clipped ratio, a value head and an entropy bonus."""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
policy, value = nn.Linear(16, 3), nn.Linear(16, 1)
parameters = [*body.parameters(), *policy.parameters(), *value.parameters()]
optimizer = torch.optim.Adam(parameters, lr=3e-4)
states = torch.randn(12, 4)
with torch.no_grad():
    old = Categorical(logits=policy(body(states)))
    actions = old.sample()
    old_log = old.log_prob(actions)
    returns = torch.randn(12)
for _ in range(3):
    h = body(states)
    now = Categorical(logits=policy(h))
    advantage = returns - value(h).squeeze(1).detach()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (now.log_prob(actions) - old_log).exp()
    gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    loss = -gain + 0.5 * (returns - value(h).squeeze(1)).pow(2).mean() - 0.01 * now.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, 0.5)
    optimizer.step()
