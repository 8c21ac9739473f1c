"""Global state that neither wrt nor a well-behaved test leaves changed: modes, hooks, trace functions, threads."""

import gc
import os
import signal
import sys
import threading
import warnings
from typing import Any

from tests._snapshot.aside import aside
from tests._snapshot.compare import Facts, Filters, Is, Threads


def ambient() -> Facts:
    """Every global fact of Python and of the frameworks that are imported already."""
    facts = _python()
    for name, probe in PROBES.items():
        if (module := sys.modules.get(name)) is not None:
            facts |= {f"{name}: {fact}": value for fact, value in probe(module).items()}
    return facts


def _python() -> Facts:
    facts: Facts = {
        "sys.gettrace()": Is(sys.gettrace()),
        "sys.getprofile()": Is(sys.getprofile()),
        "threading.gettrace()": Is(threading.gettrace()),
        "threading.getprofile()": Is(threading.getprofile()),
        "threads": Threads(frozenset(t for t in threading.enumerate() if not isinstance(t, threading._DummyThread))),
        "SIGINT handler": Is(signal.getsignal(signal.SIGINT)),
        "warnings filters": Filters(tuple(warnings.filters), len(sys.modules)),
        "warnings.showwarning": Is(warnings.showwarning),
        "sys.excepthook": Is(sys.excepthook),
        "sys.displayhook": Is(sys.displayhook),
        "recursion limit": sys.getrecursionlimit(),
        "gc enabled": gc.isenabled(),
        "working directory": os.getcwd(),
    }
    if monitoring := getattr(sys, "monitoring", None):  # Python 3.12
        tools = {number: monitoring.get_tool(number) for number in range(6)}
        facts["sys.monitoring"] = {
            number: (name, monitoring.get_events(number)) for number, name in tools.items() if name is not None
        }
    return facts


def _numpy(np: Any) -> Facts:
    return {"errors": np.geterr(), "error call": Is(np.geterrcall()), "print options": repr(np.get_printoptions())}


def _torch(torch: Any) -> Facts:
    facts = _torch_grad_modes(torch) | _torch_other_modes(torch)
    with aside(torch):
        return facts | _torch_numerics(torch)


def _torch_grad_modes(torch: Any) -> Facts:
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "forward grad mode": torch._C._is_fwd_grad_enabled(),
        "forward mode level": torch.autograd.forward_ad._current_level,
        "anomaly mode": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "autograd threads": torch._C._is_multithreading_enabled(),
        "view replay": torch._C._is_view_replay_enabled(),
        "saved-tensor hooks": Is(_top_saved_tensor_hook(torch)),
        "saved-tensor hooks allowed": torch._C._autograd._saved_tensors_hooks_is_enabled(),
        "global module hooks": {
            name: tuple(map(Is, hooks.values()))
            for name, hooks in vars(torch.nn.modules.module).items()
            if name.startswith("_global_") and isinstance(hooks, dict)
        },
    }


def _torch_other_modes(torch: Any) -> Facts:
    facts: Facts = {
        # the default device is one of these
        "function modes": tuple(map(Is, torch.overrides._get_current_function_mode_stack())),
        "function overrides": torch._C._is_torch_function_enabled(),
        "dispatch modes": tuple(map(Is, torch.utils._python_dispatch._get_current_dispatch_mode_stack())),
        "functorch level": torch._C._functorch.maybe_current_level(),
        "autocast": {
            device: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in ("cpu", "cuda")
        },
        "autocast cache": torch.is_autocast_cache_enabled(),
    }
    if (dynamo := sys.modules.get("torch._dynamo.eval_frame")) is not None:
        facts["compiler stance"] = repr(getattr(dynamo, "_stance", None))
    return facts


def _torch_numerics(torch: Any) -> Facts:
    return {
        "default dtype": torch.get_default_dtype(),
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        "cudnn": (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark, torch.backends.cudnn.enabled),
        "attention kernels": (
            torch.backends.cuda.flash_sdp_enabled(),
            torch.backends.cuda.mem_efficient_sdp_enabled(),
            torch.backends.cuda.math_sdp_enabled(),
        ),
        "matmul precision": torch.get_float32_matmul_precision(),
        "number of threads": torch.get_num_threads(),
    }


def _top_saved_tensor_hook(torch: Any) -> object:
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks and hooks[0]


def _tensorflow(tf: Any) -> Facts:
    from tensorflow.python import pywrap_tfe
    from tensorflow.python.eager import context

    return {
        "eager": tf.executing_eagerly(),
        "functions run eagerly": tf.config.functions_run_eagerly(),
        "operation callbacks": tuple(map(Is, context.context().op_callbacks)),
        "no open tape": pywrap_tfe.TFE_Py_TapeSetIsEmpty(),
    }


def _keras(keras: Any) -> Facts:
    return {"floatx": keras.config.floatx(), "dtype policy": repr(keras.config.dtype_policy())}


def _jax(jax: Any) -> Facts:
    return {name: repr(value) for name, value in jax.config.values.items()}


PROBES = {"numpy": _numpy, "torch": _torch, "tensorflow": _tensorflow, "keras": _keras, "jax": _jax}
