"""Q-learning with a target network and an epsilon-greedy policy."""

import copy
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
random.seed(0)
online = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
target = copy.deepcopy(online)
optimizer = torch.optim.RMSprop(online.parameters())
memory = []
state = torch.zeros(4)
for step in range(8):
    with torch.no_grad():
        action = random.randrange(2) if random.random() < 0.2 else online(state).argmax().item()
    following = torch.randn(4)
    memory.append((state, action, float(following[0] > 0), following))
    state = following
    if step % 4 == 3:
        s, a, r, s2 = zip(*memory[-4:])
        s, s2 = torch.stack(s), torch.stack(s2)
        a, r = torch.tensor(a), torch.tensor(r)
        q = online(s).gather(1, a[:, None]).squeeze(1)
        with torch.no_grad():
            wanted = r + 0.99 * target(s2).max(1).values
        loss = F.smooth_l1_loss(q, wanted)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(online.parameters(), 1.0)
        optimizer.step()
        target.load_state_dict(online.state_dict())
