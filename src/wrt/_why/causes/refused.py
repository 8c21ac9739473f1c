"""The framework refuses the backward."""

from wrt._why.cause import Cause, ops

CAUSES = (
    Cause("inplace_saved_tensor", "a tensor needed by backward was changed in place",
          "write h = h + ... instead of h += ..., or .clone() it before the change",
          raised=("modified by an inplace operation", "a tensor that backward needs was changed in place"),
          case="h = torch.sigmoid(x)\nh += 1\ny = h.sum()"),
    Cause("view_inplace", "a view was written in place where autograd cannot follow",
          "write v = v * 3 instead of v *= 3, or .clone() it first",
          raised=("is a view and is being modified inplace", "leaf Variable that requires grad is being used in an in-place",
                  "a view of a leaf Variable", "leaf variable has been moved into the graph interior")),
    Cause("graph_freed", "the graph was freed by an earlier backward",
          "compute it again, or pass retain_graph=True to the first backward",
          raised=("backward through the graph a second time", "after they have already been freed",
                  "the graph of y was freed by an earlier backward")),
    Cause("nonscalar_backward", "backward of more than one number without a gradient argument",
          "reduce it to one number, for example .sum(), or pass gradient=",
          raised=("grad can be implicitly created only for scalar outputs", "Gradient only defined for scalar-output")),
    Cause("save_for_backward_nontensor", "save_for_backward was given something that is no tensor",
          "keep numbers and shapes as attributes: ctx.n = n",
          raised=("save_for_backward can only save variables",)),
    Cause("no_reverse_rule", "an operation or control flow without a reverse rule",
          "use lax.scan or fori_loop with fixed bounds, or forward mode",
          stops=ops("while"),
          raised=("Reverse-mode differentiation does not work", "Differentiation rule for", "Transpose rule",
                  "derivative for .* is not implemented", "No gradient defined for operation")),
)  # fmt: skip
