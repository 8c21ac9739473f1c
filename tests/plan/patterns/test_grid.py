"""Patterns that are products of axes: who owns each slot of a pass."""

import numpy as np
import pytest

from wrt._plan.patterns.structure import Link, _owners


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize(("up", "down"), [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("way", ["pull", "push"])
def test_owners_are_those_of_a_loop_over_all_entries(up, down, wrap, way):
    for of_y, of_x, offsets, repeat in ((7, 7, (-1, 0, 1), 3), (6, 11, (0, 1), 2), (9, 5, (-2, 0), 4), (8, 8, (0, 3), 1)):
        link = Link(0, 0, up, down, offsets, wrap)
        entries = set()
        for row in range(of_y):
            for offset in offsets:
                column = row * up // down + offset
                column = column % of_x if wrap else column
                if 0 <= column < of_x:
                    entries.add((row, column) if way == "pull" else (column, row))
        owners = {}
        clash = False
        for line, other in entries:
            clash |= owners.setdefault((line % repeat, other), line) != line
        found = _owners(link, repeat, of_y, of_x, way)
        assert (found is None) == clash
        if found is not None:
            line, held = found
            assert {(int(c), int(o)): int(line[c, o]) for c, o in zip(*np.nonzero(held), strict=True)} == owners
