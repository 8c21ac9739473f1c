"""Gradients were switched off, or never switched on."""

from wrt._why.cause import Cause, ops

CAUSES = (
    Cause(
        "no_grad",
        "computed while gradients were switched off",
        "move the line out of torch.no_grad(); to freeze a model use requires_grad_(False) on its parameters",
        case="with torch.no_grad():\n    h = x * 2\ny = (h * w).sum()",
        raised=("gradients are switched off here",),
    ),
    Cause(
        "inference_mode",
        "computed under inference mode",
        "move the line out of torch.inference_mode(); to freeze a model use requires_grad_(False)",
        case="with torch.inference_mode():\n    h = x * 2\ny = (h.clone() * w).sum()",
        raised=("Inference tensors cannot be saved for backward", "inference tensor", r"made under torch\.inference_mode"),
    ),
    Cause(
        "not_requires_grad",
        "the input does not require grad",
        "call {x}.requires_grad_() before it is used",
        raised=("does not require grad and does not have a grad_fn", "does not require grad, so torch kept no"),
        case="x = torch.ones(3)\ny = (x * w).sum()",
    ),
    Cause(
        "late_requires_grad",
        "the input was followed only after it had been used",
        "move this line before the first use of {x}",
        case="x = torch.ones(3)\ny = (x * w).sum()\nx.requires_grad_()",
    ),
    Cause("unwatched", "the tape does not watch this tensor", "call tape.watch({x}) inside the tape, or make it a tf.Variable"),
    Cause("tape_closed", "computed outside the tape", "move the line into the `with tf.GradientTape()` block"),
    Cause(
        "tape_consumed",
        "a non-persistent tape was used twice",
        "write tf.GradientTape(persistent=True), or ask for all gradients in one call",
        raised=("non-persistent GradientTape can only be used",),
    ),
    Cause(
        "variable_reassigned_to_tensor",
        "the variable was replaced by a plain tensor",
        "write {x}.assign(...), which keeps it a variable",
    ),
    Cause(
        "sample_no_reparam",
        "a random sample without reparametrization",
        "use rsample(), or write mean + std * noise",
        case="z = torch.distributions.Normal(x, 1.0).sample()\ny = (z * w).sum()",
        stops=ops("normal bernoulli bernoulli_ multinomial poisson binomial _standard_gamma Multinomial "
                  "StatelessMultinomial RandomGamma RandomPoisson random_gamma categorical"),
        flattens=ops("bernoulli poisson normal"),  # torch gives these a backward, of zeros
    ),
)  # fmt: skip
