"""JAX: the operations of one run, cut into segments between any two values, differentiated by JAX itself."""
