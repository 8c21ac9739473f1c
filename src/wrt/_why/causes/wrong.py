"""There is a gradient, and it is not the one that was meant."""

from wrt._why.cause import Cause

CAUSES = (
    Cause(
        "custom_backward_wrong",
        "a custom backward disagrees with its forward",
        "correct the backward; wrt.check(f, x) shows element by element where it differs",
        raised=("returned an incorrect number of gradients", "returned an invalid gradient at index"),
    ),
    Cause("custom_backward_none", "a custom backward returns None for this input", "return the derivative for this input"),
    Cause(
        "accumulated_grad",
        ".grad holds the sum of several backward calls",
        "reset it before backward: optimizer.zero_grad() or {x}.grad = None",
    ),
    Cause(
        "broadcast",
        "two shapes broadcast by accident, so the loss is another one than meant",
        "make the shapes equal: a.squeeze(1) or b.unsqueeze(1)",
    ),
    Cause("double_softmax", "softmax before a loss that applies it again", "give the raw logits to the loss"),
    Cause("hook", "a hook changes the gradient", "remove the hook, or let it return None"),
    Cause("objective_sign", "the step goes up an objective that is to go down", "step against the gradient: x - eps * grad"),
    Cause(
        "optimizer_wrong_params",
        "the optimizer holds other parameters",
        "build the optimizer after the model has its final parameters",
    ),
    Cause(
        "nonleaf_grad",
        ".grad of a tensor that is no leaf is not kept",
        "call {x}.retain_grad() before backward, or ask for d({y}) / d({x})",
    ),
    Cause(
        "leaf_moved_by_to_device_or_cast",
        "a cast or a move made a copy that is no leaf",
        "give dtype= and device= with requires_grad=True in one call, or requires_grad_() after the cast",
    ),
)
