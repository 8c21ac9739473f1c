"""Architectures of transformers, random weights from small configurations: causal ones and bidirectional ones told apart.

Each model gets token ids; the test follows the vectors of its own embedding. A causal language model has to pass
`assert_causal`, a bidirectional one has to fail it, and the failure has to name a pair of positions.

Release 5.12.0 is asked about too, in a folder of its own: there RoFormer, MegatronBert, RemBert and BigBird for causal
language modeling see the future (huggingface/transformers #48745), and Bert does not. `--quick` leaves that out,
`--release 5.9.0` asks about one release alone.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

SMALL: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "max_position_embeddings": 64, "head_dim": 8, "embedding_size": 16,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    "big_bird": {"attention_type": "original_full"},
    "bloom": {"n_layer": 2, "n_head": 4},
    "codegen": {"rotary_dim": 4, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "ctrl": {"dff": 48, "n_layer": 2, "n_head": 4, "n_embd": 32},
    "falcon": {"num_kv_heads": 4, "new_decoder_architecture": False},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2, "num_heads": 4, "window_size": 4},
    "gptj": {"rotary_dim": 4},
    "mamba": {"state_size": 4, "conv_kernel": 4},
    "mixtral": {"num_local_experts": 4},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "expansion_ratio": 2},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "phi": {"partial_rotary_factor": 0.5},
    "rembert": {"input_embedding_size": 16, "output_embedding_size": 16},
    "rwkv": {"attention_hidden_size": 32, "context_length": 64},
    "xglm": {"d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 48},
    "xlnet": {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "flaubert": {"emb_dim": 32, "n_layers": 2, "n_heads": 4},
    "xlm": {"emb_dim": 32, "n_layers": 2, "n_heads": 4},
    "deberta-v2": {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["p2c", "c2p"]},
}
CAUSAL = [
    "gpt2", "gpt_neo", "gptj", "gpt_neox", "llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "gemma2", "phi",
    "phi3", "opt", "bloom", "falcon", "mpt", "codegen", "stablelm", "starcoder2", "olmo", "olmo2", "cohere", "granite",
    "persimmon", "xglm", "ctrl", "mamba", "bert", "roformer", "megatron-bert", "rembert", "big_bird", "gpt_bigcode",
]  # fmt: skip
BIDIRECTIONAL = [
    "bert", "roberta", "distilbert", "electra", "albert", "deberta-v2", "roformer", "megatron-bert", "rembert",
    "big_bird", "mpnet", "camembert", "convbert", "nystromformer", "mobilebert", "xlm-roberta", "ernie",
]  # fmt: skip
OLD = "5.12.0"
LEAK_IN_5_12 = {"roformer", "megatron-bert", "rembert", "big_bird"}


def tiny(kind: str, model_type: str) -> Any:
    """A small model of an architecture, with random weights, in eval mode."""
    import torch
    import transformers
    from transformers import AutoConfig

    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **OWN.get(model_type, {}))
    for name, value in {**SMALL, **OWN.get(model_type, {})}.items():
        if hasattr(config, name):
            with contextlib.suppress(AttributeError):  # some are computed from others
                setattr(config, name, value)
    if kind == "causal" and hasattr(config, "is_decoder"):
        config.is_decoder = True  # what the Bert family asks for before it masks
    if getattr(config, "layer_types", None):
        with contextlib.suppress(AttributeError):
            config.layer_types = config.layer_types[: config.num_hidden_layers]
    config = type(config).from_dict({k: v for k, v in config.to_dict().items() if k != "model_type"})
    family = transformers.AutoModelForCausalLM if kind == "causal" else transformers.AutoModelForMaskedLM
    return family.from_config(config).eval()


def verdict(kind: str, model_type: str) -> tuple[str, str]:
    """("causal" | "leaks" | "error", details)."""
    import torch

    from wrt.testing import Failed, assert_causal

    ids = torch.randint(3, 60, (2, 9), generator=torch.Generator().manual_seed(1))
    try:
        model = tiny(kind, model_type)
        return "causal", repr(assert_causal(model, ids, points=2, output=lambda out: out["logits"]))
    except Failed as failed:
        return "leaks", str(failed)
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}".replace("\n", " ")[:300]


def here(arguments: list[str]) -> int:
    """Ask about the release that is installed."""
    import transformers

    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    old = transformers.__version__ == OLD
    print(f"transformers {transformers.__version__}")
    wrong = told = 0
    only = [word for word in arguments if not word.startswith("-")]
    for kind, names in (("causal", CAUSAL), ("bidirectional", BIDIRECTIONAL)):
        for name in names:
            if only and name not in only:
                continue
            started = time.perf_counter()
            found, details = verdict(kind, name)
            expected = "causal" if kind == "causal" and not (old and name in LEAK_IN_5_12) else "leaks"
            first = details.splitlines()[0]
            print(f"{name:15} for {kind:13} {found:7} {time.perf_counter() - started:5.1f} s  {first}", flush=True)
            told += found != "error"
            wrong += found not in (expected, "error")
            if found == "leaks" and kind == "causal":
                print("    " + details.replace("\n", "\n    "))
    print(f"{told} models told, {wrong} not as expected")
    return 1 if wrong or (not only and told < 20) else 0


def elsewhere(release: str) -> int:
    """Ask about another release, installed for the occasion; torch and wrt come from this environment."""
    root = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "release"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(target)]
        done = subprocess.run([*pip, f"transformers=={release}", f"numpy=={version('numpy')}"])
        if done.returncode:
            print(f"transformers {release} cannot be installed here: left out")
            return 0
        program = f"import sys; sys.path.insert(0, {str(target)!r}); sys.path.insert(1, {str(root)!r})"
        names = ["bert", *sorted(LEAK_IN_5_12)]
        program += f"; from corpus.transformers_causality import here; sys.exit(here({names!r}))"
        return subprocess.run([sys.executable, "-c", program]).returncode


def main(arguments: list[str]) -> int:
    if "--release" in arguments:
        return elsewhere(arguments[arguments.index("--release") + 1])
    told = here(arguments)
    return told or (0 if "--quick" in arguments else elsewhere(OLD))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
