"""Every number that decides something, with its unit. What is swept how depends on these and on the program alone."""

MOST_OPERATIONS = 2000
"""On the way from x to y: longer programs are not walked by the planner."""
NEAR_OPERATIONS = 64
"""Before y, in which the widest tensor is looked for."""

EAGER_US_PER_OPERATION = 30.0
"""A gradient function run by Python. These and the next were measured on dense, convolutional and recurrent networks, layer
norms and stencils, with 2 to 125 operations in a pull."""
TRACE_MS_PER_OPERATION = 0.8
TRACED_US_PER_ROW = 250.0
"""A traced pull is called without Python's share, once for each row."""
PFOR_MS_PER_OPERATION = 3.0
"""To trace a pull and rewrite it for many rows."""
EAGER_NUMBERS_PER_US = 1000.0
"""Written one row at a time; side by side they take a tenth."""
GRADIENTS_PER_OPERATION = 1.5
"""Operations of a pull for each one that was recorded."""

PUSH_COST_IN_PULLS = 1.8

TRACED_KEPT = 8
"""Traced sweeps, and"""
PATHS_KEPT = 32
"""ways between two tensors that a recording remembers."""

PIECE_NUMBERS = 2**20
"""Of an array that are brought to double precision at a time."""
SMALL_NUMBERS = 2**16
"""Of an array that NumPy looks at faster than an operation starts."""
OPERATION_IN_NUMBERS = 180_000.0
"""What the rates of the cost model let through in the time that one eager operation takes."""
ALIGNMENT_BYTES = 64
"""Of the memory of a tensor."""
