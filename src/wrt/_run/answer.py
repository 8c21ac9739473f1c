"""What a question gets: the numbers, whether anything connects y and x, and what ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wrt._core.protocol import Array
from wrt._core.report import Report


class Answer:
    """The block of the Jacobian as an (m, n) array, whether anything connects y and x, and what ran.

    The report may be a function that writes it: most are never read. So may the array be, where `shaped`, the answer in
    the shape of the question, is there already: another shape may take a copy.
    """

    __slots__ = ("_array", "_report", "connected", "shaped")

    def __init__(
        self,
        array: Array | Callable[[], Array],
        connected: bool,
        report: Report | Callable[[], Report],
        shaped: Array | None = None,
    ) -> None:
        self._array = array
        self.connected = connected
        self._report = report
        self.shaped: Any = shaped

    @property
    def array(self) -> Array:
        if self.shaped is not None and callable(self._array):
            self._array = self._array()
        return self._array

    @array.setter
    def array(self, array: Array) -> None:
        self._array, self.shaped = array, None

    @property
    def report(self) -> Report:
        if not isinstance(self._report, Report):
            self._report = self._report()
        return self._report

    @report.setter
    def report(self, report: Report) -> None:
        self._report = report
