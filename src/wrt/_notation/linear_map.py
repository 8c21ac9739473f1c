"""What a derivative can do without being formed: solvers, spectra, estimates and Gram products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wrt._core.ask import Ask
    from wrt._core.report import Report
    from wrt._operators.estimates import Estimate
    from wrt._operators.gram import Gram
    from wrt._operators.spectrum import Spectrum
    from wrt._operators.steps import Solved


class LinearMap:
    """Products are all that is asked of it."""

    __slots__ = ()
    _transposed: bool

    if TYPE_CHECKING:  # what a derivative brings along

        def _operator(self) -> Ask:
            """The question, as a map from x to y."""

        def _note(self) -> Report:
            """Where to write down what ran."""

        def _at_hand(self) -> Any:
            """All of it, where it is computed already."""

    def operator(self) -> Any:
        """As scipy's `LinearOperator`, flattened y by flattened x: one pass a product, one batch for a block of them."""
        from wrt._operators import asked

        return asked.operator(self._operator(), self._note(), transposed=self._transposed)

    def gram(self) -> Gram:
        """JᵀJ, lazily; `J.T.gram()` is JJᵀ. One pass for each line of J's shorter side."""
        from wrt._operators import asked

        return asked.gram(self._operator(), self._at_hand, transposed=self._transposed)

    def block_diagonal(self, *, y_axis: int = 0, x_axis: int = 0) -> Any:
        """The blocks dy[b]/dx[b] of a batch, (b, rest of y, rest of x); samples that do not mix share their passes."""
        from wrt._operators import asked

        axes = (y_axis, x_axis)
        return asked.block_diagonal(self._operator(), self._note(), axes, transposed=self._transposed)

    def singular_values(self, k: int = 1, *, tolerance: float | None = None) -> Spectrum:
        """The k largest singular values with bounds and vectors; J is never formed."""
        from wrt._operators import asked

        return asked.singular_values(self._operator(), self._note(), k, tolerance, transposed=self._transposed)

    def estimate_trace(self, *, passes: int = 64) -> Estimate:
        """The trace of a square J from random probes (Hutch++), with its standard error."""
        from wrt._operators import asked

        return asked.estimate_trace(self._operator(), self._note(), passes)

    def estimate_diagonal(self, *, passes: int = 64) -> Estimate:
        """The diagonal of a square J from random probes, each entry with its standard error."""
        from wrt._operators import asked

        return asked.estimate_diagonal(self._operator(), self._note(), passes)

    def solve(self, b: Any, *, damping: float = 0.0, tolerance: float | None = None, most: int | None = None) -> Solved:
        """The s of least ‖J s - b‖² + damping² ‖s‖², matrix-free: a Newton or Gauss-Newton step."""
        from wrt._operators import asked

        wanted = {"damping": damping, "tolerance": tolerance, "most": most}
        return asked.solve(self._operator(), self._note(), b, wanted, transposed=self._transposed)
