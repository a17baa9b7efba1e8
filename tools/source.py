"""The source tree as figures: import cycles, repeated class names, contracts, sizes. Reads files, imports nothing."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

PACKAGE = "lastgood"
BACKENDS = f"{PACKAGE}.catalog"
BACKEND_CLASSES = {"SQLiteCatalog"}


class Size(NamedTuple):
    """How large a folder is."""

    modules: int
    lines: int


class Source:
    """The modules below a folder, parsed."""

    def __init__(self, root: Path) -> None:
        self._texts = {_module_name(path.relative_to(root)): path.read_text() for path in root.rglob("*.py")}
        self.modules = {name: ast.parse(text) for name, text in sorted(self._texts.items())}

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """Return which modules each module imports: at its top, inside functions and for type checking alone."""
        return {name: {*self._imported_by(tree)} - {name} for name, tree in self.modules.items()}

    def cycles(self) -> list[list[str]]:
        """Return the groups of modules that import each other, in a ring or worse, the largest first."""
        groups = (sorted(group) for group in strongly_connected(self.imports) if len(group) > 1)
        return sorted(groups, key=lambda group: (-len(group), group))

    def repeated_classes(self) -> dict[str, list[str]]:
        """Return the public class names that several modules define, and which. `aio` mirrors names on purpose."""
        homes = defaultdict(list)
        for module, tree in self.modules.items():
            if "aio" not in module.split("."):
                for node in tree.body:
                    if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                        homes[node.name].append(module)
        return {name: modules for name, modules in sorted(homes.items()) if len(modules) > 1}

    def public_methods(self, module: str, name: str, *, abstract: bool = False) -> list[str]:
        """Return the public methods and properties of a class, inherited ones included.

        With `abstract`, only those without a body: what an implementation of a contract must bring.
        """
        found = self._class(module, name)
        if found is None:
            return []
        home, definition = found
        methods = {
            node.name
            for node in definition.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and not node.name.startswith("_")
            and not (abstract and _has_body(node))
        }
        for base in definition.bases:
            if isinstance(base, ast.Name):
                methods.update(self.public_methods(home, base.id, abstract=abstract))
        return sorted(methods)

    def home_of(self, name: str, package: str) -> str:
        """Return the module of a package that defines a public class."""
        for module, tree in self.modules.items():
            if _is_below(module, package) and _defined(tree, name):
                return module
        raise LookupError(f"no module of {package} defines {name}")

    def uses_of_backend(self) -> list[str]:
        """Return where a catalog's file, or the making of a catalog, is used outside the catalogs' own package."""
        return [
            f"{module}:{node.lineno}"
            for module, tree in self.modules.items()
            if not _is_below(module, BACKENDS)
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute | ast.Call) and _is_internal(node)
        ]

    def sizes(self) -> dict[str, Size]:
        """Return the size of each folder directly below the package; what lies in the package itself is `.`."""
        sizes: dict[str, Size] = defaultdict(lambda: Size(0, 0))
        for module, text in sorted(self._texts.items()):
            parts = module.split(".")
            is_folder = len(parts) > 2 or any(name.startswith(f"{module}.") for name in self._texts)
            folder = parts[1] if len(parts) > 1 and is_folder else "."
            sizes[folder] = Size(sizes[folder].modules + 1, sizes[folder].lines + text.count("\n"))
        return dict(sorted(sizes.items()))

    def _imported_by(self, tree: ast.Module) -> Iterator[str]:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    below = f"{node.module}.{alias.name}"
                    if (module := below if below in self.modules else node.module) in self.modules:
                        yield module
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self.modules)

    def _class(self, module: str, name: str) -> tuple[str, ast.ClassDef] | None:
        """Find a class by the name that a module knows it by: defined there, or imported from another module."""
        tree = self.modules.get(module)
        if tree is None:
            return None
        if definition := _defined(tree, name):
            return module, definition
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return self._class(node.module, alias.name)
        return None


def strongly_connected(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the strongly connected components of a graph (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    components: list[set[str]] = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for successor in graph[node]:
            if successor not in order:
                visit(successor)
                lowest[node] = min(lowest[node], lowest[successor])
            elif successor in stack:
                lowest[node] = min(lowest[node], order[successor])
        if lowest[node] == order[node]:
            position = stack.index(node)
            components.append(set(stack[position:]))
            del stack[position:]

    for node in graph:
        if node not in order:
            visit(node)
    return components


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_below(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _defined(tree: ast.Module, name: str) -> ast.ClassDef | None:
    return next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)


def _has_body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell whether a function does anything: has more than a docstring and `...`."""
    return not all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in function.body)


def _is_internal(node: ast.Attribute | ast.Call) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in BACKEND_CLASSES
    owner = node.value
    name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    return node.attr == "file" and name.lstrip("_") == "catalog"
