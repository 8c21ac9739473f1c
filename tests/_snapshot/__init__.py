"""Proof that nothing of the user's changed.

Three parts, one rule: a *fact* recorded before must agree with the same fact recorded after.

    ambient     modes, trace functions, default dtype, hooks, threads: checked around every test by `conftest.py`
    objects     `.grad`, version counter, hooks, values ... of the tensors and modules a test names
    chance      the states of the random number generators

    with unchanged(x, model):            # all three, around a call into wrt; also when the call raises
        (d(y) / d(x)).value

    watched(x, model)                    # the objects alone, from here to the end of the test

Frameworks are looked at only when the test has imported them.
"""

from tests._snapshot.ambient import ambient
from tests._snapshot.chance import chance
from tests._snapshot.compare import Changed, require_same
from tests._snapshot.objects import facts_of
from tests._snapshot.unchanged import unchanged

__all__ = ["Changed", "ambient", "chance", "facts_of", "require_same", "unchanged"]
