"""Other people's models, recorded: names against the values they had, a line for every autograd node, results unchanged.

    python -m corpus.recorded_models [--quick]
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import wrt
from wrt import d

os.environ.setdefault("HF_HUB_OFFLINE", "1")
Build = Callable[[], tuple[nn.Module, dict[str, Any]]]

TRANSFORMERS = {
    "GPT2": ("GPT2Config", "GPT2LMHeadModel", {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 60}),
    "Llama": ("LlamaConfig", "LlamaForCausalLM", {}),
    "Bert": ("BertConfig", "BertForMaskedLM", {}),
    "OPT": ("OPTConfig", "OPTForCausalLM", {"word_embed_proj_dim": 32, "ffn_dim": 64}),
    "Mistral": ("MistralConfig", "MistralForCausalLM", {"num_key_value_heads": 2}),
}
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 60}


class UNet(nn.Module):
    """Two scales, skip connections, transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.up2, self.up1 = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skip = torch.relu(self.down1(x))
        low = torch.relu(self.norm(self.down2(nn.functional.max_pool2d(skip, 2))))
        high = self.up2(low)
        return self.up1(torch.cat([skip, high], 1))


class HandLSTM(nn.Module):
    """Written out, one step after another."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(4 + 6, 24)

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        h, c = torch.zeros(6), torch.zeros(6)
        for x in xs:
            i, f, g, o = self.gates(torch.cat([x, h])).chunk(4)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h


def from_transformers(config: str, model: str, sizes: dict[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
    """A model of random weights, from its configuration alone."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    built = getattr(transformers, model)(getattr(transformers, config)(**(SMALL | sizes)))
    return built.eval(), {"input_ids": torch.randint(0, 60, (1, 7))}


def models(quick: bool) -> dict[str, Build]:
    found: dict[str, Build] = {
        "hand-written LSTM": lambda: (HandLSTM(), {"xs": torch.randn(8, 4)}),
        "U-Net": lambda: (UNet(), {"x": torch.randn(2, 1, 16, 16)}),
        "nn.LSTM": lambda: (nn.LSTM(5, 6, num_layers=2, bidirectional=True), {"input": torch.randn(4, 2, 5)}),
        "nn.Transformer": lambda: (
            nn.Transformer(16, 2, 1, 1, 32, batch_first=True),
            {"src": torch.randn(1, 5, 16), "tgt": torch.randn(1, 4, 16)},
        ),
    }
    wanted = dict(list(TRANSFORMERS.items())[:1]) if quick else TRANSFORMERS
    for name, (config, model, sizes) in wanted.items():
        found[name] = lambda config=config, model=model, sizes=sizes: from_transformers(config, model, sizes)
    return found


def first_tensor(result: Any) -> torch.Tensor:
    if isinstance(result, torch.Tensor):
        return result
    values = result.values() if isinstance(result, dict) else result
    return first_tensor(next(iter(values)))


def outputs_by_hooks(model: nn.Module, inputs: dict[str, Any]) -> tuple[dict[str, list[torch.Tensor]], torch.Tensor]:
    """What every module gave in a plain run, by hooks of our own: the truth to compare with."""
    seen: dict[str, list[torch.Tensor]] = {}
    hooks = []
    for path, module in model.named_modules():
        if path:
            def keep(module: nn.Module, args: Any, output: Any, path: str = path) -> None:
                if isinstance(output, torch.Tensor):
                    seen.setdefault(path, []).append(output.detach().clone())

            hooks.append(module.register_forward_hook(keep))
    result = first_tensor(model(**inputs))
    for hook in hooks:
        hook.remove()
    return seen, result


def check(name: str, build: Build) -> list[str]:
    """What is wrong with the recording of one model."""
    torch.manual_seed(0)
    model, inputs = build()
    torch.manual_seed(1)
    truth, plain = outputs_by_hooks(model, inputs)
    torch.manual_seed(1)
    with wrt.record(values=True) as t:
        output = first_tensor(model(**inputs))
    problems = [] if torch.equal(plain, output) else ["the result changed"]
    for path, calls in truth.items():
        for k, value in enumerate(calls):
            if not torch.equal(t[f"{path}#{k}"].value, value):
                problems.append(f"{path}#{k} is not what the module gave")
    nodes, lines = count_lines(t, output)
    if nodes != lines:
        problems.append(f"{nodes - lines} of {nodes} autograd nodes have no line")
    answer = (d(output)[(0,) * output.ndim] / d(t[next(iter(truth))])).value if truth else None
    if answer is not None and not torch.isfinite(answer).all():
        problems.append("a derivative is not finite")
    compared = sum(map(len, truth.values()))
    print(f"{name:20s} {len(t.names):4d} names, {compared:3d} module outputs compared, {lines}/{nodes} nodes with a line")
    return [f"{name}: {problem}" for problem in problems]


def count_lines(t: Any, output: torch.Tensor) -> tuple[int, int]:
    """Inner autograd nodes, and those whose line is known."""
    seen, waiting = set(), [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen or node.name() == "torch::autograd::AccumulateGrad" or "Enter" in node.name():
            continue
        seen.add(node)
        waiting.extend(upstream for upstream, _ in node.next_functions)
    return len(seen), sum(t.line(node) is not None for node in seen)


def wrapped() -> list[str]:
    """DDP at world size 1 and a compiled module: names without the wrapper's prefix, the same answer."""
    import torch.distributed as dist

    problems = []
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29541", rank=0, world_size=1)
    try:
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        x = torch.randn(5, 3)
        weight = net[2].weight.detach().clone()
        from torch.distributed.fsdp import fully_shard

        kinds: dict[str, Callable[[], nn.Module]] = {
            "DDP": lambda: nn.parallel.DistributedDataParallel(net),
            "compiled": lambda: torch.compile(net, backend="eager"),
            "FSDP2": lambda: fully_shard(net),
        }
        for kind, wrap in kinds.items():
            t = wrt.trace(wrap(), x)
            if "0.weight" not in t.names or "2" not in t.names:
                problems.append(f"{kind}: names are {list(t.names)}")
            if not torch.allclose((d(t.output)[0] / d(t["1"])[0]).value, weight):
                problems.append(f"{kind}: a wrong derivative")
            print(f"{kind:20s} {len(t.names):4d} names")
    finally:
        dist.destroy_process_group()
    return problems


def lightning() -> list[str]:
    """A LightningModule's training step, with its attributes by name."""
    try:
        from lightning import LightningModule
    except ImportError:
        print("lightning is not installed: left out")
        return []

    class Step(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(3, 2)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            x, y = batch
            logits = self.net(x)
            return nn.functional.mse_loss(logits, y)

    step, x, y = Step(), torch.randn(4, 3), torch.randn(4, 2)
    with wrt.record() as t:
        loss = step.training_step((x, y), 0)
    truth = 2 * (step.net(x) - y) / y.numel()
    right = torch.allclose((d(loss) / d(t["training_step.logits"])).value, truth)
    print(f"{'Lightning':20s} {len(t.names):4d} names")
    return [] if right else ["Lightning: a wrong derivative"]


def main(arguments: list[str]) -> int:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    problems = []
    for name, build in models("--quick" in arguments).items():
        problems += check(name, build)
    problems += wrapped() + lightning()
    for problem in problems:
        print("UNEXPECTED", problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
