"""Every number that decides something, with its unit. What is swept how depends on these and on the program alone."""

EAGER_US_PER_OPERATION = 75.0
"""A pull through one recorded operation, run by Python. This and the next were measured on dense, convolutional and
recurrent networks, layer norms and stencils, with 1 to 80 operations."""
TRACE_MS_PER_OPERATION = 1.2
TRACED_US_PER_ROW = 250.0
"""A traced pull is called without Python's share, once for each row."""
PFOR_MS_PER_OPERATION = 4.5
"""To trace a pull and rewrite it for many rows."""
EAGER_NUMBERS_PER_US = 1000.0
"""Written one row at a time; side by side they take a tenth."""

PUSH_COST_IN_PULLS = 1.8

OPERATION_IN_NUMBERS = 180_000.0
"""What the rates of the cost model let through in the time that one eager operation takes."""
