"""One strategy, one file: what it would cost, and because of what."""
