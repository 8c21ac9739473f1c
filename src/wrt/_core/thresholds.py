"""Numbers that several layers decide by, with their units."""

MANY_NUMBERS = 2**20
"""Of one array: more are brought to double precision in pieces, and are not told apart by numbers of single precision."""
MOST_PAIRS = 2**24
"""Of elements that meet in one operation, or of lines that meet in a pattern; to list more takes longer than it saves."""
PAIR_TOLERANCE = 1e-4
"""Of a random number that comes back from the element it was sent to."""
MOST_NODES = 20_000
"""Of a live graph that are walked for a plan, and of the iterations of one loop that get names."""
NEAR_OPERATIONS = 24
"""Before y among which the widest tensor is looked for."""
ALIGNMENT_BYTES = 64
"""Of the memory that frameworks take over from NumPy without a copy: a line of the cache. NumPy begins anywhere, and MKL
takes up to three times as long for a product whose rows begin inside of a line."""
KEPT_ENTRIES = 64
"""Plans, recipes and ways through a run that are remembered, the latest of each kind;"""
KEPT_ENGINES = 16
"""and of one run: residuals and traced sweeps that are there for the next question."""
FEW_ITEMS = 64
"""That are looked at one by one: items of a container, iterations of a loop, elements of an input, paths of a graph."""
BLOCK_BYTES = 2**26
"""Of a block of an answer, on disk or on its way to a page, and of other arrays that are made at a time."""
ROUNDOFF_ROUNDINGS = 64
"""Of its terms: a sum is known to these, and is zero where no more is left."""
COARSE_SHARE = 1e-3
"""Of a column: where a fault may be larger than this and not show, the certificate says so."""
MESSAGE_CHARACTERS = 200
"""Of a framework's own message that are repeated."""
MOST_OPERATIONS = 2000
"""On the way from x to y: longer programs are not walked."""
