"""A program of JAX evaluated by NumPy, one operation after another: the first answer need not wait for a compiler."""
