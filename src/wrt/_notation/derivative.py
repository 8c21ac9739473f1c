"""A derivative is a lazy linear map: it knows its shape, costs nothing until asked, and pays only for what is asked."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from wrt._core.ask import Ask
from wrt._core.index import Elements, Shape, split
from wrt._core.report import Certificate, Report, Step
from wrt._core.value import Side, Value
from wrt._notation.explain import Explanation
from wrt._notation.sides import each_narrowed, scattered
from wrt._notation.tree import SharedPass, Tree
from wrt._run import answer as answers
from wrt._run import compact, higher_order, products
from wrt._run.answer import Answer
from wrt.errors import EngineRefused, GraphFreed, NoPath, NotATensor, NotRecorded, WrongShape, WrtError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from wrt._core.finding import Findings
    from wrt._operators.check import Checked
    from wrt._operators.estimates import Estimate
    from wrt._operators.gram import Gram
    from wrt._operators.spectrum import Spectrum
    from wrt._operators.steps import Solved
    from wrt._run.function import Function


class Derivative:
    """`d(y)[i] / d(x)[j]`: lazy, exact, indexable, a linear operator.

    The shape is `y[i].shape + x[j].shape`. Narrow it with `J[...]`, multiply with `J @ v` or `u @ J`, take `J.value`.
    """

    __slots__ = ("__weakref__", "_answer", "_entries", "_report", "_shared", "_sides", "_transposed", "_y", "rows")
    __array_ufunc__ = None  # NumPy leaves `u @ J` to us

    def __init__(
        self,
        y: Value,
        rows: Elements,
        sides: tuple[Side, ...],
        *,
        entries: Elements | None = None,
        transposed: bool = False,
    ) -> None:
        self._y = y
        self.rows = rows
        self._sides = sides
        self._entries = entries
        self._transposed = transposed
        self._answer: Answer | None = None
        self._report: Report | None = None
        self._shared: tuple[SharedPass, int] | None = None

    # ---------------------------------------------------------------- what it is

    @property
    def ask(self) -> Ask:
        """The question, up to its first denominator."""
        return Ask(self._y, self.rows, self._sides[0])

    @property
    def order(self) -> int:
        return len(self._sides)

    @property
    def _columns(self) -> Shape:
        return sum((side.shape for side in self._sides), ())

    @property
    def shape(self) -> Shape:
        """y's shape, then x's; nothing is computed."""
        if self._entries is not None:
            return self._entries.shape
        columns = self._sides[0].shape if len(self._sides) == 1 else self._columns
        return columns + self.rows.shape if self._transposed else self.rows.shape + columns

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=object)) if self.shape else 1

    @property
    def dtype(self) -> Any:
        return self._sides[-1].values[0].dtype

    @property
    def connected(self) -> bool | None:
        """Whether these elements of y can depend on these of x; False where the answer is exact zeros or an error.

        None where a path leads from x to y, and one pass does not tell whether it joins these elements.
        """
        if not self.has_path or self.order > 1:
            return self.has_path
        return answers.elements_meet(self.ask, None if self._answer is None else self._answer.array)

    @property
    def has_path(self) -> bool:
        """Whether a gradient path leads from x to y, whichever elements are asked for."""
        if self._answer is not None:
            return self._answer.connected
        return not self.known_unconnected and answers.connected(self.ask)

    @property
    def known_unconnected(self) -> bool:
        """Whether the passes of its tree have shown already that no path leads here."""
        return self._shared is not None and self._shared[0].misses(self._shared[1])

    @property
    def known(self) -> Answer | None:
        """The answer, where it is there already, by this derivative's own passes or by those of its tree."""
        if self._answer is None and self.order == 1 and self._shared is not None and self._shared[0].ran:
            self._answer = self._shared[0].take(self._shared[1])
        return self._answer

    @property
    def T(self) -> Derivative:
        """The transposed map: x's axes first."""
        return Derivative(self._y, self.rows, self._sides, entries=self._entries, transposed=not self._transposed)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a single derivative")
        return self.shape[0]

    # ---------------------------------------------------------------- narrowing

    def __getitem__(self, index: Any) -> Derivative:
        if self._entries is not None:
            return self._with_entries(self._entries.pick(index))
        left = self._columns if self._transposed else self.rows.shape
        right = self.rows.shape if self._transposed else self._columns
        halves = split(index, left, right)
        of_y, of_x = ((), None) if halves is None else halves[::-1] if self._transposed else halves
        sides = None if of_x is None else each_narrowed(self._sides, of_x)
        if sides is None:
            return self._with_entries(Elements.all(self.shape).pick(index))
        rows = self.rows.pick(of_y) if of_y else self.rows
        return Derivative(self._y, rows, sides, transposed=self._transposed)

    def _with_entries(self, entries: Elements) -> Derivative:
        return Derivative(self._y, self.rows, self._sides, entries=entries, transposed=self._transposed)

    def __truediv__(self, z: Any) -> Any:
        """Differentiate once more: `d(y) / d(x) / d(z)`."""
        if isinstance(z, Tree):
            return z.answers(lambda leaf: self / leaf)
        if not isinstance(getattr(z, "elements", None), Elements):
            raise NotATensor(
                f"d(y) / d(x) / {type(z).__name__}", "higher derivatives go on with d(...)", "write d(y) / d(x) / d(z)"
            )
        if self._transposed or self._entries is not None:
            raise WrongShape(
                "a transposed or scattered derivative cannot be differentiated again",
                f"its shape is {self.shape}",
                "differentiate first, then index or transpose: (d(y) / d(x) / d(z))[...]",
            )
        side = self._y.record.side(z.value, z.elements)
        return Derivative(self._y, self.rows, (*self._sides, side))

    # ---------------------------------------------------------------- values

    def share(self, shared: SharedPass, place: int) -> None:
        """Answer together with the other leaves of a tree."""
        self._shared = (shared, place)

    def _answered(self) -> Answer:
        if self._answer is None:
            try:
                self._answer = self._asked()
            except (NoPath, NotRecorded, GraphFreed, EngineRefused) as error:
                self._explain_error(error)
                raise
        return self._answer

    def _asked(self) -> Answer:
        if self.order > 1:
            return higher_order.answer(self._y, self.rows, self._sides)
        if self._entries is not None:
            return scattered(self.ask, self._entries, transposed=self._transposed)
        together = None if self._shared is None else self._shared[0].take(self._shared[1])
        return together or answers.answer(self.ask)

    def _explain_error(self, error: WrtError) -> None:
        """Let the error carry what `why` says first, where the run was recorded; that must never hide the error itself."""
        try:
            found = self.why()
        except Exception:
            return
        if found:
            error.finding = found[0]

    @property
    def value(self) -> Any:
        """The answer as a tensor of the framework, on x's device and in its dtype."""
        y = self._y
        with y.record.outside():
            if self._answer is None and len(self._sides) == 1 and self._entries is None and self._shared is None:
                try:
                    self._answer = answers.answer(Ask(y, self.rows, self._sides[0]))
                except (NoPath, NotRecorded, GraphFreed, EngineRefused) as error:
                    self._explain_error(error)
                    raise
                if not self._transposed:
                    return y.record.backend.arrays.reshape(self._answer.array, self.shape)
            return self._shaped(self._answered())

    def _shaped(self, answer: Answer) -> Any:
        found = answer.array
        arrays = self._y.record.backend.arrays
        if self._entries is not None:
            if self.order > 1:
                found = arrays.take(arrays.reshape(self._whole(found), (-1,)), self._entries.positions, 0)
            return arrays.reshape(found, self.shape)
        shape = self.shape
        if not self._transposed and arrays.shape(found) == shape:
            return found
        return arrays.reshape(self._whole(found), shape)

    def _whole(self, found: Any) -> Any:
        if not self._transposed or self.rows.size == 1:  # a single row reads the same in both directions
            return found
        return self._y.record.backend.arrays.transpose(found)

    def numpy(self) -> npt.NDArray[Any]:
        """The answer as a NumPy array."""
        return self._y.record.backend.arrays.numpy(self.value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self.numpy(), dtype=dtype)

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Any:
        """TensorFlow computes all of J for `u @ J` and multiplies stacks of matrices, unless it is told that J is no tensor."""
        raise NotATensor(
            "a derivative was taken for a tensor",
            f"it is a linear map of shape {self.shape}, computed when somebody asks for its numbers",
            "write J.value for a tensor, u @ J or J @ v for a product",
        )

    def item(self) -> float | complex:
        """The one number, if it is one."""
        if self.size != 1:
            raise WrongShape(
                f"a derivative of shape {self.shape} is not one number",
                f"it has {self.size} entries",
                "index it down to one, for example J[0, 0], or take J.value",
            )
        number: float | complex = self.numpy().reshape(-1)[0].item()
        return number

    def __float__(self) -> float:
        return float(self.item())  # type: ignore[arg-type]

    def __complex__(self) -> complex:
        return complex(self.item())

    def function(self) -> Function:
        """This derivative at any point, as a function of what the recorded one was given; JAX alone, also inside `jit`."""
        from wrt._run.function import as_function

        if self.order > 1 or self._entries is not None or self._transposed:
            raise WrongShape(
                "only a first derivative as it is can be had as a function",
                f"this one is of order {self.order}" if self.order > 1 else "this one is transposed, or picked entry by entry",
                "take (d(y) / d(x)).function(), and transpose, index or differentiate what it returns",
            )
        with self._y.record.outside():
            return as_function(self.ask)

    # ---------------------------------------------------------------- a linear operator

    def __matmul__(self, v: Any) -> Any:
        """`J @ v`: one push. v has x's shape (or x's shape and one more axis); the result has y's."""
        product = products.left if self._transposed else products.right
        return product(self._operator(), v, self._note())

    def __rmatmul__(self, u: Any) -> Any:
        """`u @ J`: one pull. u has y's shape (or one more axis in front); the result has x's."""
        product = products.right if self._transposed else products.left
        return product(self._operator(), u, self._note())

    def _operator(self) -> Ask:
        if self.order == 1 and self._entries is None:
            return self.ask
        if self.order == 2 and self.rows.shape == () and self._entries is None and not self._transposed:
            from wrt._operators.vectors import of_gradient

            return of_gradient(self._y, self.rows, self._sides)
        raise WrongShape(
            "only a first derivative, or a second one of a single y, is a linear map",
            f"this one has shape {self.shape}",
            "take .value and contract it yourself",
        )

    def diagonal(self) -> Any:
        """dy_i/dx_i for every i, in y's shape; the rest of the Jacobian is never stored."""
        return compact.diagonal(self._operator(), self._note())

    def sparse(self) -> csr_array:
        """The Jacobian as a scipy sparse matrix: rows are the flattened y, columns the flattened x."""
        matrix = compact.sparse(self._operator(), self._note())
        return matrix.T.tocsr() if self._transposed else matrix

    def _at_hand(self) -> Any:
        """All of J, where it is computed already or a pass shared by a tree gives it."""
        return None if self.known is None and self._shared is None else self._answered().array

    def _note(self) -> Report:
        """Where products, `diagonal` and `sparse` write down what ran, for `explain`."""
        self._report = Report()
        if self.order > 1:  # what `_operator` pulled
            self._report.steps.append(Step("gradient, kept differentiable", "pull", "one by one", 1, 1))
        return self._report

    # ---------------------------------------------------------------- without being formed

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

    # ---------------------------------------------------------------- larger than memory

    def dask(self, chunks: Any = "auto") -> Any:
        """A dask array of this shape; a block is computed when it is needed, where dask computes (see `wrt.Model`)."""
        return _beyond("dask_array")(self, chunks)

    def to_zarr(
        self, path: Any, *, chunks: Any = "auto", memory: int | None = None, layout: Literal["dense", "csr"] = "dense",
        client: Any = "auto",
    ) -> Any:  # fmt: skip
        """Write it to disk block by block, within `memory` bytes, by the dask client of the program if there is one.

        Run again, only missing blocks are computed. `layout="csr"` keeps the nonzeros alone.
        """
        return _beyond("to_zarr")(self, path, chunks=chunks, memory=memory, layout=layout, client=client)

    # ---------------------------------------------------------------- what it costs, what it rests on

    def explain(self) -> Explanation:
        """The plan before it runs, what ran once it has."""
        report = self.known.report if self.known is not None else self._report
        return Explanation.of(self.ask, self.shape, self.order, report)

    def why(self) -> Findings:
        """Why this derivative is missing, zero, not finite or wrong; false when nothing is. Needs a recording."""
        from wrt._notation.examined import of_derivative  # why is rarely asked, and not small

        return of_derivative(self._y, self.rows, self._sides[0])

    def check(self) -> Checked:
        """The derivative next to finite differences of the recorded run; needs `wrt.trace(f, x, values=True)`."""
        from wrt._operators.check import check

        return check(self._operator(), self.certificate)

    @property
    def certificate(self) -> Certificate | None:
        """The evidence for the answer; None until it is computed."""
        report = self.known.report if self.known is not None else self._report
        return None if report is None else report.certificate

    def plot(self, ax: Any = None) -> Any:
        """A heat map, white at zero; one row of an image is shown as that image. Returns the matplotlib axes."""
        from wrt._notation.text import plot

        return plot(self, ax)

    def _repr_html_(self) -> str:
        from wrt._notation.text import shown

        return shown(self)

    def __repr__(self) -> str:
        from wrt._notation.text import one_line

        return one_line(self)


def _beyond(name: str) -> Any:
    """A function of the layer above, by its name: imports only go down, and a Derivative just passes itself on."""
    return getattr(import_module(f"wrt._beyond.{name}"), name)
