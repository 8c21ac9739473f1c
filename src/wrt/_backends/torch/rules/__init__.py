"""Batches of rows pulled by rules of our own: plain tensor operations on all rows at once, for the commonest nodes.

`torch.func.vmap` over the engine gives the same numbers, but it looks at every tensor of every operation again. A rule
knows its node: what it saved, and what that means for k gradients that lie one behind the other.

`batch.py` holds the gradients, `families.py` the few shapes a rule can have, the tables (`elementwise`, `shapes`,
`products`, `reductions`, `slicing`, `pictures`) one rule for each node, `program.py` puts those of one question in order, and
`proof.py` holds each of them to the engine when it is first met.
"""
