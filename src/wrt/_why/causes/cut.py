"""The value goes on, the gradient is cut by a call that says so."""

from wrt._why.cause import Cause, ops

CAUSES = (
    Cause(
        "detach",
        ".detach() cuts the path",
        "remove .detach(), or ask for the derivative with respect to what it returns",
        stops=ops("detach detach_ detach_copy"),
        case="h = (x * 2).detach()\ny = (h * w).sum()",
    ),
    Cause(
        "stop_gradient",
        "stop_gradient cuts the path",
        "remove stop_gradient from the branch you differentiate",
        stops=ops("stop_gradient StopGradient PreventGradient"),
    ),
    Cause(
        "dot_data",
        ".data cuts the path, or hides a write from autograd",
        "use the tensor itself; for an update by hand write it under torch.no_grad() or functionally",
        stops=ops("data data="),
        case="h = (x * 2).data\ny = (h * w).sum()",
    ),
    Cause(
        "detached_hidden_state",
        "a recurrent state is cut between steps",
        "keep the state attached across the steps you want to differentiate through",
        case="w = torch.eye(3, requires_grad=True)\nh = x\nfor _ in range(3):\n    h = torch.tanh(h @ w)\n"
        "    h = h.detach()\ny = torch.tanh(h @ w).sum()",
    ),
    Cause(
        "retensor",
        "a copy of the numbers, without their history",
        "use the tensor itself, .clone() for a copy, torch.stack for a list of tensors",
        stops=ops("tensor new_tensor as_tensor asarray scalar_tensor constant Const FloatTensor"),
        case="h = torch.tensor(x * 2)\ny = (h * w).sum()",
    ),
    Cause(
        "parameter_wrap",
        "wrapping a result as a parameter makes a new leaf",
        "use the tensor itself, for example by torch.func.functional_call(layer, {'weight': w}, x)",
        stops=ops("Parameter"),
        case="p = torch.nn.Parameter(x * 2)\ny = (p * w).sum()",
    ),
    Cause(
        "copied_module",
        "the gradient belongs to a copy",
        "ask for the copy's parameters, or use torch.func.functional_call with the original's",
        case="import copy\nnet = torch.nn.Linear(3, 1)\ntwin = copy.deepcopy(net)\ny = twin(x).sum()\nx = net.weight",
        stops=ops("__deepcopy__ Parameterofacopy"),
    ),
    Cause(
        "checkpoint_reentrant",
        "activation checkpointing in its reentrant form hides the graph",
        "write checkpoint(..., use_reentrant=False)",
        raised=("use_reentrant=True",),
    ),
    Cause(
        "fresh_leaf_loss",
        "the loss was made a new leaf: requires_grad was set on a result that had lost its graph",
        "remove it, and repair the line that cuts the path",
        case="y = (x.detach() ** 2).sum()\ny.requires_grad_()",
    ),
    Cause(
        "state_assign",
        "an assignment to a variable is not differentiable",
        "use the value itself instead of reading it back from the variable",
        stops=ops("AssignVariableOp AssignAddVariableOp AssignSubVariableOp ResourceScatterUpdate assign"),
    ),
)
