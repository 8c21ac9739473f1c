"""The layer diagram of wrt as data, and a reader of imports that finds what breaks it."""

import ast
import sys
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

FACES = ("_cli", "testing")
DOORS = ("wrt", "extend", "saliency")  # "wrt" is the package's own __init__; another door, `errors`, is the bottom layer
SIBLINGS = ("_backends.torch", "_backends.jax", "_backends.tensorflow")
BELOW_NOTATION = ("_operators", "_why", "_run", "_plan", "_backends", *SIBLINGS, "_pictures", "_names", "_core", "errors")

# part -> the parts it may import, besides itself. Parts stand from top to bottom; nothing points up or sideways.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(FACES, (*DOORS, "errors")),
    **dict.fromkeys(DOORS, ("_study", "_beyond", "_notation", *BELOW_NOTATION)),
    "_microscope": ("_study", "_notation", *BELOW_NOTATION),
    "_study": ("_notation", *BELOW_NOTATION),
    "_beyond": ("_notation", *BELOW_NOTATION),
    "_notation": BELOW_NOTATION,
    "_operators": ("_run", "_plan", "_core", "errors"),
    "_why": ("_run", "_names", "_core", "errors"),
    "_run": ("_plan", "_core", "errors"),
    "_plan": ("_core", "errors"),
    "_backends": (*(part for part in SIBLINGS if part.startswith("_backends.")), "_names", "_core", "errors"),
    **dict.fromkeys(SIBLINGS, ("_names", "_core", "errors")),
    "_names": ("_core", "errors"),
    "_pictures": ("errors",),
    "_core": ("errors",),
    "errors": (),
}
SAME_PART = {"_testing": "testing", "__main__": "_cli"}  # the implementation behind the face; another way in

# framework -> the one folder that may import it
HOME = {
    **dict.fromkeys(("torch", "functorch"), "_backends.torch"),
    **dict.fromkeys(("tensorflow", "keras"), "_backends.tensorflow"),
    **dict.fromkeys(("jax", "jaxlib", "flax", "equinox"), "_backends.jax"),
}
# The demo is a user's code: it asks wrt about tensors it made itself.
USERS_CODE = ("wrt._cli.demo",)

ONLY_STDLIB_AND = {"_core": {"numpy", "psutil"}, "errors": set[str]()}


@dataclass(frozen=True)
class Import:
    """`importer` names `imported` in an import statement."""

    importer: str
    imported: str
    line: int
    for_types: bool  # under `if TYPE_CHECKING:`, so it never runs

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def sources(package: Path) -> dict[str, str]:
    """Module name -> source, for every file of the package.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a.py").write_text("import b")
    ...     sources(Path(folder))[f"{Path(folder).name}.a"]
    'import b'
    """
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return found


def imports(modules: dict[str, str], packages: set[str]) -> list[Import]:
    """Every import in these sources, the lazy ones within functions included."""
    return [
        Import(importer, imported, node.lineno, for_types)
        for importer, source in modules.items()
        for node, for_types in _walk(ast.parse(source), False)
        for imported in _names(node, importer, importer in packages, modules.keys())
    ]


def _walk(node: ast.AST, for_types: bool) -> Iterator[tuple[ast.AST, bool]]:
    yield node, for_types
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for child in node.body:
            yield from _walk(child, True)
        for child in node.orelse:
            yield from _walk(child, for_types)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _walk(child, for_types)


def _names(node: ast.AST, importer: str, is_package: bool, known: Container[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = importer.split(".") if is_package else importer.split(".")[:-1]
        upwards = package[: len(package) - node.level + 1] if node.level else []
        source = ".".join([*upwards, *([node.module] if node.module else [])])
        for alias in node.names:  # `from wrt import errors` names a module, `from wrt import d` names the package
            yield f"{source}.{alias.name}" if f"{source}.{alias.name}" in known else source


def part_of(module: str) -> str:
    """The part of the diagram a module of wrt belongs to.

    >>> part_of("wrt"), part_of("wrt._core.index"), part_of("wrt._backends"), part_of("wrt._backends.torch.sweep")
    ('wrt', '_core', '_backends', '_backends.torch')
    """
    path = module.split(".")[1:]
    if not path:
        return "wrt"
    if path[0] == "_backends":
        return ".".join(path[:2])
    return SAME_PART.get(path[0], path[0])


def violations(modules: dict[str, str], packages: set[str]) -> list[str]:
    """Every import that the diagram does not allow, in words."""
    found = imports(modules, packages)
    unknown = {part for part in map(part_of, modules) if part not in MAY_IMPORT}
    return [
        *(f"{part} has no place in the diagram" for part in sorted(unknown)),
        *(f"{one}: {why}" for one in found if (why := _why_not(one))),
        *(f"import cycle: {' -> '.join(cycle)}" for cycle in cycles(found)),
    ]


def _why_not(one: Import) -> str | None:
    top = one.imported.split(".")[0]
    here = part_of(one.importer)
    if here not in MAY_IMPORT:
        return None  # said once, for the part
    if top == "wrt":
        there = part_of(one.imported)
        return None if there == here or there in MAY_IMPORT[here] else f"{here} may not import {there}"
    if top in HOME and here != HOME[top] and not one.importer.startswith(USERS_CODE):
        return f"{top} is imported under {HOME[top]} alone"
    if here in ONLY_STDLIB_AND and top not in ONLY_STDLIB_AND[here] and top not in sys.stdlib_module_names:
        return f"{here} needs only the standard library{', numpy and psutil' if here == '_core' else ''}"
    return None


def cycles(found: list[Import]) -> list[list[str]]:
    """Import cycles between modules, each as the path that closes it. One that only types close is none."""
    edges: dict[str, set[str]] = {}
    for one in found:
        if one.imported.split(".")[0] == "wrt" and one.imported != one.importer and not one.for_types:
            edges.setdefault(one.importer, set()).add(one.imported)
    done: set[str] = set()
    closed: list[list[str]] = []

    def visit(module: str, path: list[str]) -> None:
        if module in path:
            closed.append([*path[path.index(module) :], module])
        elif module not in done:
            for target in sorted(edges.get(module, ())):
                visit(target, [*path, module])
            done.add(module)

    for module in sorted(edges):
        visit(module, [])
    return closed
