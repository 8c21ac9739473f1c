"""A question to `why`: which elements of which value, with respect to which elements of which value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from wrt._core.evidence import Evidence, Numbers
from wrt._core.finding import Finding
from wrt._core.graph import Graph, Node
from wrt._core.protocol import random_signs
from wrt._core.where import Where
from wrt._why.causes import causes
from wrt._why.paths import Route, carries_numbers, follow, upstream


@dataclass
class Question:
    """`rows` and `columns` are flat positions; None means all of them."""

    evidence: Evidence
    y: int
    x: int
    names: tuple[str, str] = ("y", "x")
    rows: npt.NDArray[np.int64] | None = None
    columns: npt.NDArray[np.int64] | None = None
    made: tuple[Where | None, Where | None] = (None, None)
    """Where y and x were made, if the recording knows it otherwise than by an operation."""

    @property
    def graph(self) -> Graph:
        return self.evidence.graph

    @cached_property
    def route(self) -> Route:
        """From the latest value of x that went into y; a parameter may have been updated since."""
        self.evidence.look_from(self.y)
        moments = self.evidence.moments(self.x)
        needed = upstream(self.graph, self.y)
        for moment in moments:
            if moment in needed and (route := self._follow(moment)).reaches:
                return route
        uses = Counter(k for node in self.graph.nodes if carries_numbers(node) for k in {*node.inputs})
        return self._follow(max(moments, key=lambda moment: uses[moment]))

    def _follow(self, moment: int) -> Route:
        return follow(self.evidence, self.y, moment, self.evidence.starts(moment))

    @cached_property
    def seed(self) -> Numbers:
        """One number: itself. Several: signs that do not cancel."""
        shape = self.graph.tensors[self.y].shape
        size = int(np.prod(shape))
        weights = np.ones(1) if size == 1 else signs((size,), seed=7_001)
        if self.rows is not None:
            kept = np.zeros(size)
            kept[self.rows] = weights[self.rows]
            weights = kept
        return weights.reshape(shape)

    @cached_property
    def cotangents(self) -> dict[int, Numbers | None]:
        return self.evidence.cotangents(self.y, self.seed)

    @cached_property
    def gradient(self) -> Numbers | None:
        if "cotangents" in self.__dict__:
            return self.cotangents.get(self.route.x)
        return self.evidence.gradient(self.y, self.seed, self.route.x)

    def arrivals(self, node: Node) -> list[Numbers | None]:
        """The cotangents that arrive at the outputs of an operation."""
        return [self.cotangents.get(k) for k in node.outputs]

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """The elements of x that are asked about."""
        shape = self.graph.tensors[self.route.x].shape
        if self.columns is None:
            return np.ones(shape, dtype=bool)
        flat = np.zeros(int(np.prod(shape)), dtype=bool)
        flat[self.columns] = True
        return flat.reshape(shape)

    def where_made(self, tensor: int) -> Where | None:
        """The user's line that made a value."""
        for moment in reversed(self.evidence.moments(tensor)):
            node = self.graph.producer(moment)
            if node is not None and node.where is not None:
                return node.where
        if tensor == self.y:
            return self.made[0]
        return self.made[1] if tensor in self.evidence.moments(self.x) else None

    def finding(
        self,
        slug: str,
        where: Where | Node | None,
        evidence: str,
        *,
        certain: bool,
        sentence: str = "",
        also: tuple[str, ...] = (),
    ) -> Finding:
        """A Finding in the words of its cause."""
        cause = causes()[slug]
        place = where.where if isinstance(where, Node) else where
        y, x = self.names
        remedy = cause.remedy.replace("{x}", x).replace("{y}", y)
        given = self.graph.framework == "jax" and place is not None and place is self.made[1]
        sure = certain and place is not None and not given  # what cannot be pointed at is a hint; so is where f names it
        return Finding(slug, sentence or f"{cause.means}: {x} to {y}", place, sure, evidence, remedy, also)


def max_abs(arrays: Iterable[Numbers | None]) -> float:
    """The largest absolute element among arrays."""
    return max((float(np.max(np.abs(array))) for array in arrays if array is not None and array.size), default=0.0)


def signs(shape: tuple[int, ...], seed: int) -> Numbers:
    """Random weights, the same ones each time."""
    size = int(np.prod(shape))
    drawn: Numbers = random_signs(1, max(1, size), seed)[0][:size]
    return drawn.reshape(shape)


def display_name(graph: Graph, tensor: int, otherwise: str) -> str:
    """What to call a value: a variable of its own rather than an item of something."""
    names = graph.tensors[tensor].names if tensor in graph.tensors else ()
    plain = [name for name in names if "[" not in name and not name.endswith("()")]
    return (plain or list(names) or [otherwise])[-1]
