"""What keeps the house in order? Rules that read source and return complaints.

Each rule is a function from a `Module` (or from all of them) to a list of sentences, so that it can be tried
on a made-up module.
Nothing is imported or run here: a rule sees the syntax tree only.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["BENCHMARKS", "HOUSE_RULES", "RULES", "Import", "Module", "modules"]

# The order of the house: a room imports only rooms before it. (Some are not built yet.)
ROOMS = (
    "language",
    "matching",
    "protocol",
    "client",
    "routing",
    "adaptation",
    "reconfiguration",
    "broker",
    "p2p",
    "trace",
    "settings",
    "embedded",
    "runtime",
    "plugins",
    "server",
    "sim",
    "workloads",
    "scenario",
    "pipeline",
    "spark",
    "cli",
    "dashboard",
    "testing",
)
# The benchmarks are a package of their own, which the house does not know.
BENCHMARKS = "braid_bench"
# Everybody may import these, and they import nobody.
FOUNDATION = ("errors", "compiled")
# Front doors use the package as its users do, through the names of `braid` itself.
FRONT_DOORS = frozenset({"pipeline", "spark", "cli", "dashboard", "testing"})
# The drivers drive any machine, so they do not know the rooms that machines are made of.
DRIVERS = frozenset({"runtime", "sim"})
MACHINE_ROOMS = frozenset(ROOMS[ROOMS.index("routing") : ROOMS.index("p2p") + 1])
# The same input must give the same answer here, on every machine and in every run.
PURE_ROOMS = frozenset({*ROOMS[: ROOMS.index("trace")], *FOUNDATION})

IMPURE_MODULES = frozenset(
    {
        "asyncio",
        "concurrent",
        "multiprocessing",
        "secrets",
        "select",
        "selectors",
        "socket",
        "socketserver",
        "ssl",
        "subprocess",
        "threading",
        "time",
        "uuid",
    }
)
# Calls that read the clock or an unseeded generator although their module is welcome.
CLOCK_METHODS = frozenset({"now", "utcnow", "today"})
CLOCK_OWNERS = frozenset({"datetime", "date"})
SEEDED_RANDOM = frozenset({"Random"})
SEEDED_NUMPY_RANDOM = frozenset(
    {"BitGenerator", "Generator", "PCG64", "Philox", "SeedSequence", "default_rng"}
)

LINES_MAX = 600


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, and where in the source."""

    target: str
    """The full dotted name; for `from a import b` it is `a.b`, since `b` may be a module."""
    line: int
    module_level: bool
    """True when it runs as soon as the module is imported."""
    for_types_only: bool
    """True under `if TYPE_CHECKING:`."""


@dataclass(frozen=True)
class Module:
    """One source file of the package."""

    name: str
    """Dotted, such as `braid.language.parser`; a package's own file has the package's name."""
    source: str
    is_package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, filename=self.name)

    @property
    def room(self) -> str:
        """The room it stands in, or "" for the package itself, its entry points, and the benchmarks."""
        parts = self.name.split(".")
        if parts[0] == BENCHMARKS:
            return ""
        return parts[1] if len(parts) > 1 and parts[1] != "__main__" else ""

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        return tuple(self._imports_in(self.tree.body, module_level=True, for_types_only=False))

    @cached_property
    def declared(self) -> list[str] | None:
        """The names in its `__all__`, or None without a readable one."""
        return _declared(self.tree)

    def _imports_in(
        self, nodes: list[ast.stmt] | Iterator[ast.AST], *, module_level: bool, for_types_only: bool
    ) -> Iterator[Import]:
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, node.lineno, module_level, for_types_only)
            elif isinstance(node, ast.ImportFrom):
                base = self._base_of(node)
                for alias in node.names:
                    yield Import(f"{base}.{alias.name}", node.lineno, module_level, for_types_only)
            elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                yield from self._imports_in(node.body, module_level=module_level, for_types_only=True)
                yield from self._imports_in(
                    node.orelse, module_level=module_level, for_types_only=for_types_only
                )
            else:
                inside_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from self._imports_in(
                    ast.iter_child_nodes(node),
                    module_level=module_level and not inside_function,
                    for_types_only=for_types_only,
                )

    def _base_of(self, node: ast.ImportFrom) -> str:
        """The absolute module that a `from ... import` names."""
        if node.level == 0:
            return node.module or ""
        package = self.name.split(".") if self.is_package else self.name.split(".")[:-1]
        package = package[: len(package) - (node.level - 1)]
        return ".".join([*package, *([node.module] if node.module else [])])


def modules(source_root: Path) -> list[Module]:
    """All modules below a directory that holds packages, in the order of their names."""
    found = []
    for path in sorted(source_root.rglob("*.py")):
        parts = list(path.relative_to(source_root).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        if is_package:
            parts.pop()
        found.append(Module(".".join(parts), path.read_text(encoding="utf-8"), is_package))
    return found


def rooms_are_known(module: Module) -> list[str]:
    """A new room is given its place in the order before it is built."""
    if module.room in ("", *FOUNDATION, *ROOMS):
        return []
    return [f"{module.name}: no room {module.room!r} in the order of the house"]


def rooms_import_only_rooms_before_them(module: Module) -> list[str]:
    """Imports for types and inside functions count too: they are knowledge all the same."""
    if module.room == "":
        return []
    complaints = []
    for each in module.imports:
        parts = each.target.split(".")
        if parts[0] != "braid" or (len(parts) > 1 and parts[1] == module.room):
            continue
        target = parts[1] if len(parts) > 1 else ""
        problem = _direction_problem(module.room, target)
        if problem:
            complaints.append(f"{module.name}:{each.line}: {problem}")
    return complaints


def _direction_problem(room: str, target: str) -> str | None:
    if target in FOUNDATION:
        return None
    if target not in ROOMS:
        if room in FRONT_DOORS:
            return None
        return f"{room} imports from `braid` itself; name the room"
    if room not in ROOMS or ROOMS.index(target) > ROOMS.index(room):
        return f"{room} imports {target}, which comes after it"
    if room in DRIVERS and target in MACHINE_ROOMS:
        return f"{room} drives any machine and must not know {target}"
    return None


def nobody_knows_the_benchmarks(module: Module) -> list[str]:
    """They are not there where only the package is installed."""
    if module.name.split(".")[0] == BENCHMARKS:
        return []
    return [
        f"{module.name}:{each.line}: imports {each.target}, which is another distribution"
        for each in module.imports
        if each.target.split(".")[0] == BENCHMARKS
    ]


def pure_rooms_stay_pure(module: Module) -> list[str]:
    """No clock, thread, socket, process or unseeded randomness before `trace`."""
    if module.room not in PURE_ROOMS:
        return []
    complaints = [
        f"{module.name}:{each.line}: {module.room} is pure and imports {each.target}"
        for each in module.imports
        if each.target.split(".")[0] in IMPURE_MODULES and not each.for_types_only
    ]
    complaints += [
        f"{module.name}:{each.line}: {each.target} is unseeded; make a random.Random(seed)"
        for each in module.imports
        if each.target.startswith("random.") and each.target.split(".")[1] not in SEEDED_RANDOM
    ]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute):
            problem = _impure_attribute(node)
            if problem:
                complaints.append(f"{module.name}:{node.lineno}: {problem}")
        elif isinstance(node, ast.Call) and _is_unseeded_call(node):
            complaints.append(f"{module.name}:{node.lineno}: {ast.unparse(node)} has no seed")
    return complaints


def _impure_attribute(node: ast.Attribute) -> str | None:
    owner = ast.unparse(node.value)
    if owner == "random" and node.attr not in SEEDED_RANDOM:
        return f"random.{node.attr} is unseeded; make a random.Random(seed)"
    if owner in ("np.random", "numpy.random") and node.attr not in SEEDED_NUMPY_RANDOM:
        return f"{owner}.{node.attr} is unseeded; make a default_rng(seed)"
    if node.attr in CLOCK_METHODS and owner.split(".")[-1] in CLOCK_OWNERS:
        return f"{owner}.{node.attr} reads the clock; time arrives as an argument"
    if owner == "os" and node.attr == "urandom":
        return "os.urandom is unseeded; make a random.Random(seed)"
    return None


def _is_unseeded_call(node: ast.Call) -> bool:
    name = ast.unparse(node.func).split(".")[-1]
    return name in ("Random", "default_rng") and not node.args and not node.keywords


def spark_is_imported_late(module: Module) -> list[str]:
    """Outside the pipeline, Spark is an extra that most processes never load."""
    if module.room == "pipeline":
        return []
    return [
        f"{module.name}:{each.line}: imports {each.target} at module level"
        for each in module.imports
        if each.target.split(".")[0] in ("pyspark", "py4j") and each.module_level and not each.for_types_only
    ]


def public_names_are_declared(module: Module) -> list[str]:
    """A module with public names has `__all__`, and what that lists is there, once."""
    if module.name.endswith(".__main__"):
        return []
    declared = module.declared
    if declared is None:
        has_public_names = any(not name.startswith("_") for name in _defined(module.tree))
        return [f"{module.name}: no __all__, or not a plain list of strings"] if has_public_names else []
    complaints = [
        f"{module.name}: {name} is listed twice" for name in sorted(set(declared)) if declared.count(name) > 1
    ]
    bound = _bound(module.tree)
    if "__getattr__" not in bound:  # names that are made on demand cannot be seen from here
        complaints += [
            f"{module.name}: __all__ lists {name}, which is not there"
            for name in declared
            if name not in bound
        ]
    return complaints


def imported_names_are_declared(house: list[Module]) -> list[str]:
    """What one module imports from another is in the other's `__all__`: that is what makes it public."""
    by_name = {module.name: module for module in house}
    complaints = []
    for module in house:
        for each in module.imports:
            owner, _, name = each.target.rpartition(".")
            if owner not in by_name or each.target in by_name or name.startswith("__"):
                continue
            if name not in (by_name[owner].declared or ()):
                complaints.append(f"{module.name}:{each.line}: {owner} does not list {name} in its __all__")
    return complaints


def _defined(tree: ast.Module) -> Iterator[str]:
    """The names that a module makes itself, without those it imports."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        else:
            yield from _assigned_names(node)


def _assigned_names(node: ast.stmt) -> Iterator[str]:
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign | ast.AugAssign)
        else []
    )
    for target in targets:
        for part in ast.walk(target):
            if isinstance(part, ast.Name):
                yield part.id


def _declared(tree: ast.Module) -> list[str] | None:
    """The names in a literal `__all__`, or None without one."""
    for node in tree.body:
        if "__all__" in _assigned_names(node) and isinstance(node, ast.Assign | ast.AnnAssign):
            if not isinstance(node.value, ast.List | ast.Tuple):
                return None
            items = [item.value for item in node.value.elts if isinstance(item, ast.Constant)]
            names = [item for item in items if isinstance(item, str)]
            return names if len(names) == len(node.value.elts) else None
    return None


def _bound(tree: ast.Module) -> set[str]:
    """Every name that some statement of the module binds outside functions and classes."""
    names: set[str] = set()
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.stmt):
            names.update(_assigned_names(node))
            waiting.extend(ast.iter_child_nodes(node))
    return names


def modules_stay_short(module: Module) -> list[str]:
    """A long module usually holds a second one."""
    lines = module.source.count("\n")
    return [f"{module.name}: {lines} lines, more than {LINES_MAX}"] if lines > LINES_MAX else []


def modules_open_with_a_docstring(module: Module) -> list[str]:
    """It says which question the module answers."""
    if ast.get_docstring(module.tree) or not module.source.strip():
        return []
    return [f"{module.name}: no docstring"]


# Rules about one module.
RULES = (
    rooms_are_known,
    rooms_import_only_rooms_before_them,
    nobody_knows_the_benchmarks,
    pure_rooms_stay_pure,
    spark_is_imported_late,
    public_names_are_declared,
    modules_stay_short,
    modules_open_with_a_docstring,
)

# Rules about all modules together.
HOUSE_RULES = (imported_names_are_declared,)
