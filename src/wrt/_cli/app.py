"""The `wrt` command: one function for each of its commands."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import wrt
from wrt._cli import query as queries
from wrt._cli import script as scripts
from wrt._cli.query import Left
from wrt.errors import NoPath, NotRecorded, UnknownName, WrongQuery, WrtError
from wrt.extend import named, numbers, refuse_foreign

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")

Script = Annotated[Path, typer.Argument(help="A Python script; it runs once, to its end.")]
Arguments = Annotated[list[str] | None, typer.Argument(help="Arguments of the script, after --.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; what the script prints goes to stderr.")]


@app.callback()
def _wrt() -> None:
    """The derivative of anything with respect to anything."""


def main() -> None:
    app(prog_name="wrt")


def _say(words: Any, file: Any = None) -> None:
    """Print as text alone: names, messages and questions may hold signs that would move a terminal's cursor."""
    text = str(words)
    if not text.replace("\n", "").isprintable():
        text = "".join(one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape").decode() for one in text)
    print(text, file=file)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """An error of wrt goes to stderr: exit status 2 for a question nobody can read, 1 for anything else."""
    try:
        yield
    except WrtError as error:
        _say(error, file=sys.stderr)
        raise typer.Exit(2 if isinstance(error, WrongQuery) and not isinstance(error, OSError) else 1) from None


def _run(script: Path, arguments: list[str] | None, *, record: bool = False, quiet: bool = False) -> Left:
    """Run the script; `quiet` leaves stdout to the answer."""
    with contextlib.redirect_stdout(sys.stderr) if quiet else contextlib.nullcontext():
        if not record:
            return Left(scripts.run(script, arguments or []))
        scripts.compile_script(script)  # a recording of nothing would hide that it cannot be read
        for name in scripts.recordable(script):
            importlib.import_module(name)  # what is to be recorded has to be there first
        with wrt.record() as t:
            return Left(scripts.run(script, arguments or []), t)


@app.command()
def version() -> None:
    """Say which wrt this is."""
    _say(f"wrt {wrt.__version__} (Python {platform.python_version()})")


@app.command()
def demo(
    only: Annotated[str, typer.Argument(help="The number of a question, 1 to 5; all of them if left out.")] = "",
    framework: Annotated[str, typer.Option(help="torch, tensorflow or jax; all of them if left out.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print what came out as JSON.")] = False,
) -> None:
    """Ask what people ask most about gradients, and check every answer another way.

    All of them end with a page to click at, written into this folder. The exit status is 1 when a check fails.
    """
    from wrt._cli.demo import demonstrate

    raise typer.Exit(demonstrate(only, framework, as_json))


# ---- ask ----


@app.command()
def ask(
    script: Script,
    query: Annotated[str, typer.Argument(help="What to differentiate by what, e.g. 'y[0] / model.fc.weight[:, 2]'.")],
    arguments: Arguments = None,
    record: Annotated[
        bool,
        typer.Option("--record", help="Record the run: TensorFlow, tensors filled in place, names within functions."),
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Also say how it was answered.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a script and answer `y[0] / x[2]` for the variables it leaves behind.

    The exit status is 0 for an answer, 1 where the script or the derivative fails, 2 for a question nobody can read.
    """
    with _refusals():
        try:
            question = queries.read(query)  # before the script: it may take long
            left = _run(script, arguments, record=record, quiet=as_json)
            answer = lambda: list(_answers(queries.derivative(question, left), str(question), as_json, explain))
            found = scripts.among(queries.names(question, left), answer)
        except NoPath as error:
            write = f"wrt why {script.name} {query!r} says where the path ends"  # instead of what to write in the script
            raise NoPath(error.what, error.where, write) from None
        except NotRecorded as error:
            if record or "record()" not in error.write:
                raise
            raise NotRecorded(error.what, error.where, "add --record: in a recorded run nothing needs to require grad") from None
    said = [one for one, _ in found]
    _say(json.dumps(said[0] if len(said) == 1 else said) if as_json else "\n".join(said))
    if not all(answered for _, answered in found):
        raise typer.Exit(1)


def _answers(answer: Any, name: str, as_json: bool, explain: bool) -> Iterator[tuple[Any, bool]]:
    """What to print for each Derivative, and whether it was answered: one of a tree leaves the others as they are."""
    every = list(named(answer, name))
    for path, one in every:
        try:
            yield _for_programs(one, path) if as_json else _for_people(one, path, explain), True
        except WrtError as error:
            if len(every) == 1:
                raise
            yield {"query": path, "error": str(error)} if as_json else f"{path}   {error.what}", False


def _for_people(derivative: wrt.Derivative, name: str, explain: bool) -> str:
    """The question, its shape and dtype, and its numbers; of more than 200 the corners."""
    found = derivative.numpy()
    passes = derivative.explain().passes
    cost = "1 pass" if passes == 1 else f"{passes} passes"
    zeros = "" if derivative.has_path else ", no dependence: exact zeros"
    sizes = np.abs(found[np.isfinite(found) & (found != 0)])
    plain = not sizes.size or bool(sizes.max() < 1e6 and sizes.min() > 1e-4)  # these read well without exponents
    with np.printoptions(precision=6, suppress=plain, threshold=200, edgeitems=3, linewidth=100):
        lines = str(found).splitlines()
    lines += [f"{found.size} entries; --json gives every one"] if found.size > 200 else []
    lines += str(derivative.explain()).splitlines() if explain else []
    head = f"{name}   shape {derivative.shape}, {_dtype(derivative)}, {cost}{zeros}"
    return "\n".join([head, *(f"  {line}" for line in lines)])


def _for_programs(derivative: wrt.Derivative, name: str) -> dict[str, Any]:
    """The same as plain data, every number of it, with what ran."""
    return {
        "query": name,
        "shape": list(derivative.shape),
        "dtype": _dtype(derivative),
        "connected": derivative.has_path,
        "value": _plain(derivative.numpy().tolist()),
        "explain": derivative.explain().to_dict(),
    }


def _plain(value: Any) -> Any:
    """JSON has no complex numbers, no NaN and no infinity: pairs and words stand for them.

    >>> _plain([1.0, float("nan"), 2 + 1j])
    [1.0, 'nan', [2.0, 1.0]]
    """
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, complex):
        return [_plain(value.real), _plain(value.imag)]
    return value if math.isfinite(value) else str(value)


def _dtype(derivative: wrt.Derivative) -> str:
    """The name of a dtype of any framework: float32, bfloat16."""
    return str(derivative.dtype).removeprefix("<dtype: '").removesuffix("'>").rsplit(".", 1)[-1]


# ---- why ----


@app.command()
def why(
    script: Script,
    query: Annotated[str, typer.Argument(help="Of what by what, e.g. 'loss / model.fc.weight[0]'; without it, everything.")] = "",
    arguments: Arguments = None,
    as_json: AsJson = False,
) -> None:
    """Run a script and say why a gradient is missing, zero, not finite or wrong, or what the script died of.

    The exit status is 0 where nothing certain is found, 1 where something is, 2 for a question nobody can read.
    """
    with _refusals():
        question = queries.read(query) if query else None  # before the script: it may take long
        found = _examine(script, question, arguments, as_json)
    _say(json.dumps(found.to_dict()) if as_json else found)
    if found.certain:
        raise typer.Exit(1)


def _examine(script: Path, question: queries.Query | None, arguments: list[str] | None, quiet: bool) -> Any:
    named = {"torch", "tensorflow", "jax"} & scripts.imports(script)
    if named == {"jax"}:
        raise NotRecorded(
            "a script of JAX cannot be watched from outside",
            "operations on JAX arrays leave no trace outside a transformation",
            "write t = wrt.trace(f, x) in the script, and print(wrt.why(t.output, t.inputs[0]))",
        )
    for name in sorted(named) or ("torch",):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    try:
        left = _run(script, arguments, record=True, quiet=quiet)
    except scripts.ScriptFailed as failed:
        explained = None if failed.__cause__ is None else wrt.why(failed.__cause__)
        if not explained:
            raise
        return explained
    if question is None:
        return left.run.why()
    if len(question.by) != 1:
        raise WrongQuery(f"{question} is a higher derivative", "why asks about one gradient", "write loss / x")
    return wrt.why(queries.differential(question.y, left), queries.differential(question.by[0], left))


@app.command()
def explain_cause(slug: Annotated[str, typer.Argument(help="A cause, as `wrt why` names it in brackets.")]) -> None:
    """Say what a cause means, with a small program that has it and what to write instead."""
    try:
        _say(wrt.explain_cause(slug))
    except UnknownName as error:
        _say(error, file=sys.stderr)
        raise typer.Exit(2) from None


# ---- show ----


@app.command()
def show(
    script: Script,
    arguments: Arguments = None,
    at: Annotated[str | None, typer.Option(help="Where the page opens, for example 'fc[0, 3] / x'.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write one HTML file instead of serving.")] = None,
    row: Annotated[list[str] | None, typer.Option(help="Rows for the file: fc, or 'conv2[0, 5, 3, 3]'; repeat it.")] = None,
    by: Annotated[list[str] | None, typer.Option(help="What the rows are differentiated by; repeat it.")] = None,
    limit: Annotated[str, typer.Option(help="The size of the file, at most.")] = "20 MB",
    sources: Annotated[bool, typer.Option("--sources", help="Put the lines of your code into the file.")] = False,
    browser: Annotated[bool, typer.Option(help="Open the browser.")] = True,
    port: Annotated[int, typer.Option(help="The port of the live page; a free one by default.")] = 0,
) -> None:
    """Open a page that shows what every element of a run depends on.

    A script that leaves a recording (`t = wrt.trace(f, x)`) behind is shown by that; any other is recorded as a whole.
    The exit status is 1 where the script fails or nothing can be shown, 2 for a row nobody can read.
    """
    with _refusals():
        chosen = [queries.read_side(one) for one in row or []]  # before the script: it may take long
        opens = queries.read(at) if at else None
        refuse_foreign(output)
        t, left = _recording(script, arguments)
        if output is None:
            target, source = (None, None) if opens is None else (opens.y.handle(t), opens.by[0].handle(t))
            t.show(target=target, source=source, title=script.name, browser=browser, port=port, wait=True)
        else:
            rows = [one.handle(t) for one in chosen] if chosen else None
            _say(t.save_html(output, rows=rows, by=by or (), limit=limit, sources=sources, title=script.name))
        del left  # the script's own tensors have lived as long as the page


def _recording(script: Path, arguments: list[str] | None) -> tuple[wrt.Trace, Mapping[str, Any]]:
    """The last recording that the script left behind, or one of all it did; and its variables."""
    if scripts.recordable(script) and not scripts.records_itself(script):
        for name in scripts.recordable(script):
            importlib.import_module(name)
        with wrt.record(values=True) as t:
            return t, scripts.run(script, arguments or [])
    left = scripts.run(script, arguments or [])
    found = [one for one in left.values() if isinstance(one, wrt.Trace)]
    if not found:
        raise NotRecorded(
            f"{script.name} left no recording behind",
            "only PyTorch and TensorFlow can be recorded from outside; in JAX a function has to be traced",
            "end the script with t = wrt.trace(f, x)",
        )
    return found[-1], left


# ---- flow and steer ----


@app.command()
def flow(
    script: Script,
    arguments: Arguments = None,
    loss: Annotated[str | None, typer.Option(help="The variable with the loss; by default loss.")] = None,
    model: Annotated[str | None, typer.Option(help="The variable with the model; by default the only one.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also write a picture, for example flow.png.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show gradient sizes at every parameter and every layer, and what vanished, exploded or died.

    The exit status is 1 where the script fails or something is not found.
    """
    with _refusals():
        refuse_foreign(plot, b"")
        left = _run(script, arguments, record=bool(scripts.recordable(script)), quiet=as_json).variables
        scalar = scripts.choose(left, loss, ("loss",), scripts.is_number, "loss", "--loss")
        seen = wrt.flow(scalar, scripts.choose(left, model, ("model", "net"), scripts.is_model, "model", "--model"))
        if plot is not None:
            seen.plot().figure.savefig(plot)
        spots = [f"  {layer.name}: {layer.spot}" for layer in seen if layer.spot]
        spots += [f"  {name}: {count} dead units" for name, count in seen.dead.items()]
        notes = ["look at", *spots] if spots else ["nothing vanishes, explodes or is dead"]
        _say(json.dumps(seen.to_dict()) if as_json else "\n".join([repr(seen), "", *notes]))


@app.command()
def steer(
    script: Annotated[Path, typer.Argument(help="A Python script that leaves a model and its input behind.")],
    toward: Annotated[str, typer.Argument(help="What is to move, e.g. 'fc2[0, 10]' or 'output[0, 3]'.")],
    arguments: Arguments = None,
    to: Annotated[str, typer.Option(help="up, down, or a value.")] = "up",
    eps: Annotated[float, typer.Option(help="How far the input may go.")] = 0.1,
    norm: Annotated[str, typer.Option(help="inf, 2 or 1.")] = "inf",
    steps: Annotated[int, typer.Option(help="1 is one signed step.")] = 1,
    model: Annotated[str | None, typer.Option(help="The variable with the model.")] = None,
    input: Annotated[str | None, typer.Option(help="The variable with the input; by default x.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the new input, as .npy.")] = None,
    as_json: AsJson = False,
) -> None:
    """Change the input of a model so that a hidden unit or an output moves as asked, and say whether it did.

    The exit status is 0 where it moved as asked, 1 where it did not or the script fails, 2 for a question nobody can read.
    """
    with _refusals():
        side = queries.Reader(toward).side()  # before the script: it may take long
        refuse_foreign(save, b"")
        way: dict[str, Any] = {"to": _direction(to), "eps": eps, "norm": _norm(norm), "steps": steps}
        left = _run(script, arguments, quiet=as_json).variables
        subject = scripts.choose(left, model, ("model", "net"), scripts.is_model, "model", "--model")
        x = scripts.choose(left, input, ("x", "inputs", "data"), scripts.is_tensor, "input", "--input")
        find = lambda t: side.pick(t.output) if side.path == ("output",) else side.handle(t)
        found = wrt.steer(subject, x, toward=find, **way)
        if save is not None:
            np.save(save, numbers(found.input))
        words = repr(found).replace("the target", toward, 1)
        data = {one: getattr(found, one) for one in ("moved", "before", "after", "path", "change")}
        _say(json.dumps({"toward": toward, **data, "words": words}) if as_json else words)
    if not found:
        raise typer.Exit(1)


def _direction(to: str) -> str | float:
    try:
        return to if to in ("up", "down") else float(to)
    except ValueError:
        raise WrongQuery(f"--to {to}", "a unit goes up, down, or to a value", "write --to up, --to down or --to 1.5") from None


def _norm(norm: str) -> str | int:
    if norm not in ("inf", "2", "1"):
        raise WrongQuery(f"--norm {norm}", "steps are known in three norms", "write --norm inf, --norm 2 or --norm 1")
    return norm if norm == "inf" else int(norm)
