"""An operation whose backward is right alone and wrong in a batch."""

import jax


@jax.custom_batching.custom_vmap
def twice(g):
    return 2 * g


@twice.def_vmap
def wrong_in_a_batch(size, batched, g):
    return 3 * g, batched[0]  # alone it doubles, in a batch it triples


@jax.custom_vjp
def doubled(x):
    return 2 * x


doubled.defvjp(lambda x: (2 * x, None), lambda _, g: (twice(g),))
