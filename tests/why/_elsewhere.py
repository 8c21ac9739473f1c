"""A helper in a file of its own, with the mistake in it."""


def normalize(x):
    x = x - x.mean()
    return (x / x.std()).detach()
