"""Numbers that several layers decide by, with their units."""

MOST_NUMBERS = 2**20
"""Of one tensor whose elements are told apart by their numbers: larger ones are not, in single precision."""
MOST_PAIRS = 2**24
"""Of elements that meet in one operation."""
PAIR_TOLERANCE = 1e-4
"""Of a random number that comes back from the element it was sent to."""
NEAR_OPERATIONS = 24
"""Before y among which the widest tensor is looked for."""
PIECE_NUMBERS = 2**20
"""Of an array that are brought to double precision at a time."""
ALIGNMENT_BYTES = 64
"""Of the memory that frameworks take over from NumPy without a copy."""
COARSE_SHARE = 1e-3
"""Of a column: where a fault may be larger than this and not show, the certificate says so."""
WRAPPER_DEPTH = 8
"""Of wrappers around a rule of the user's own."""
MESSAGE_CHARACTERS = 200
"""Of a framework's own message that are repeated."""
MOST_OPERATIONS = 2000
"""On the way from x to y: longer programs are not walked by the planner."""
