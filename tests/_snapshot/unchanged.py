"""`with unchanged(x, model):` proves that a call into wrt left no trace."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests._snapshot.ambient import ambient
from tests._snapshot.chance import chance
from tests._snapshot.compare import Facts, require_same
from tests._snapshot.objects import facts_of


@contextmanager
def unchanged(*objects: object, **named: object) -> Iterator[None]:
    """Compare these objects, the random number generators and all global modes before and after the block.

    The comparison is made however the block ends: by its last line, an exception or KeyboardInterrupt.
    """

    def now() -> Facts:
        return ambient() | chance() | facts_of(*objects, **named)

    before = now()
    try:
        yield
    except BaseException as error:
        require_same(before, now(), error)
        raise
    require_same(before, now())
