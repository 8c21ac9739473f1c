"""A random sample without reparametrization."""

from wrt._why.cause import Cause, ops

CAUSE = Cause(
    "sample_no_reparam",
    family="modes",
    means="a random sample without reparametrization",
    remedy="use rsample(), or write mean + std * noise",
    stops=ops(
        "normal bernoulli bernoulli_ multinomial poisson binomial _standard_gamma Multinomial StatelessMultinomial "
        "RandomGamma RandomPoisson random_gamma categorical"
    ),
    flattens=ops("bernoulli poisson normal"),
    case="""\
import torch
import wrt

with wrt.record():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    z = torch.distributions.Normal(x, 1.0).sample()
    y = (z * w).sum()

print(wrt.why(y, x)[0])
""",
)
