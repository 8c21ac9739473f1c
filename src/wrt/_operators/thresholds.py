"""The numbers by which products with a Jacobian are cut short, and by which a check believes differences."""

SHORT_LINES = 96
"""Of a side that is swept as a whole: an iteration would take as many passes."""
SPARE_VECTORS = 6
"""Beyond k in a block: what converges is what the block can hold apart."""
SPACE_BLOCKS = 12
"""Of a Krylov space before it is gathered into its best vectors."""
ENGINE_ROUNDINGS = 4096
"""That an engine, or a long computation in double precision, may leave."""
STEP_CUBE_ROOTS = 3.0
"""Of the precision: a step at which the error of central differences meets roundoff."""
SPREAD_SLACK = 20.0
"""Times the spread of the differences that the engine may be away from them."""
