"""How much do the handlers of a broker know of each other? Counted from the syntax tree.

`python -m tests.house.handlers [directory]` prints the figures of a directory, that of `braid.broker` if none
is given; `--all` every place, too.

*Handler*: a class of `broker/` whose constructor takes the turn (`Turn`): it can say and do something.
What puts them together (`Composition`, `BrokerCore`) is none, nor is what all of them share (the turn itself,
and who is connected), nor who only looks (`Invariants`).

*Part*: a handler that another one makes for itself, or that is made for it because others must be given the
same (`PARTS`). An owner and its parts are one thing; to everybody else a part is a handler like any other.

*Reference*: each place where a handler names a member of another one: `self._links.ready` counts one, and so
does `links.ready` for a parameter or a local name of that handler. A function that was given to the
constructor is no reference: who calls it does not know whose it is. Nor is a protocol that names a few
questions.

*Reach-through*: a reference that goes on into what it finds: `self._links.dialling.next_us`.

*Hook*: an attribute of a handler that is assigned from outside it; or one that holds a function which the
constructor was not given, so that it has to be assigned later.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Figures", "figures", "figures_of_directory"]

TURN = "Turn"
SHARED = frozenset({TURN, "Connections"})
COMPOSERS = frozenset({"BrokerCore", "Composition", "Messages"})
OBSERVERS = frozenset({"Invariants"})
PARTS = {
    "Completeness": "Links",
    "Copying": "Reconfigurations",
    "Dialling": "Links",
    "LinkOperations": "Links",
    "Reachability": "Links",
    "Replacements": "Links",
    "ShortcutLimits": "Reconfigurations",
    "LinkStates": "Mesh",
    "LoadReports": "Mesh",
    "SoftWords": "Mesh",
}


@dataclass
class Figures:
    """What was counted, each with its place."""

    references: list[str] = field(default_factory=list)
    reach_throughs: list[str] = field(default_factory=list)
    hooks: list[str] = field(default_factory=list)
    constructors: dict[str, int] = field(default_factory=dict)
    """The lines of each handler's constructor, and of the composers'."""

    def summary(self) -> str:
        name, lines = max(self.constructors.items(), key=lambda each: each[1])
        return (
            f"references between handlers: {len(self.references)}\n"
            f"reach-throughs: {len(self.reach_throughs)}\n"
            f"hooks: {len(self.hooks)}\n"
            f"longest constructor: {lines} lines ({name})"
        )


@dataclass
class _Class:
    name: str
    node: ast.ClassDef
    constructor: ast.FunctionDef | None
    parameters: dict[str, set[str]]
    """The names in the annotation of each parameter of the constructor."""
    fields: dict[str, str] = field(default_factory=dict)
    """Its attributes that are known to hold an instance of a class of the broker."""
    made: set[str] = field(default_factory=set)
    """The classes it makes instances of for itself."""


def figures_of_directory(directory: Path) -> Figures:
    """The figures of all modules in a directory."""
    return figures(path.read_text(encoding="utf-8") for path in sorted(directory.glob("*.py")))


def figures(sources: Iterable[str]) -> Figures:
    """The figures of some modules."""
    classes = {each.name: each for source in sources for each in _classes(ast.parse(source))}
    for each in classes.values():
        _find_fields(each, classes)
    handlers = {
        name
        for name, each in classes.items()
        if any(TURN in names for names in each.parameters.values())
        and name not in SHARED | COMPOSERS | OBSERVERS
    }
    owners = {part: name for name, each in classes.items() for part in each.made if name in handlers}
    owners.update(PARTS)
    found = Figures()
    for name, each in sorted(classes.items()):
        if name in handlers | COMPOSERS and each.constructor is not None:
            lines = (each.constructor.end_lineno or 0) - each.constructor.lineno + 1
            found.constructors[name] = lines
        if name in handlers:
            unit = owners.get(name, name)
            _count(each, {other for other in handlers if owners.get(other, other) != unit}, found)
        if name in handlers | COMPOSERS:
            found.hooks += _assigned_from_outside(each, handlers)
    for name in sorted(handlers):
        found.hooks += _declared_hooks(classes[name])
    return found


def _classes(tree: ast.Module) -> Iterator[_Class]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            constructor = next(
                (each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"),
                None,
            )
            parameters: dict[str, set[str]] = {}
            if constructor is not None:
                arguments = [*constructor.args.args, *constructor.args.kwonlyargs]
                parameters = {each.arg: _names(each.annotation) for each in arguments}
            yield _Class(node.name, node, constructor, parameters)


def _names(annotation: ast.expr | None) -> set[str]:
    if annotation is None:
        return set()
    # What a function takes or gives is not what the parameter is.
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) in ("Callable", "Mapping"):
        return set()
    return {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}


def _find_fields(owner: _Class, classes: dict[str, _Class]) -> None:
    for node in ast.walk(owner.node):
        targets: list[ast.expr] = []
        value: ast.expr | None = None
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign):
            targets, value = [node.target], node.value
        for target in targets:
            if not _is_own(target):
                continue
            if isinstance(value, ast.Name):
                known = owner.parameters.get(value.id, set()) & classes.keys()
                if len(known) == 1:
                    owner.fields[target.attr] = known.pop()
            elif isinstance(value, ast.Call) and ast.unparse(value.func) in classes:
                owner.fields[target.attr] = ast.unparse(value.func)
                owner.made.add(ast.unparse(value.func))


def _is_own(node: ast.expr) -> bool:
    """Whether this is `self.something`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _count(owner: _Class, others: set[str], found: Figures) -> None:
    for function in (each for each in owner.node.body if isinstance(each, ast.FunctionDef)):
        known = {
            each.arg: name
            for each in [*function.args.args, *function.args.kwonlyargs]
            for name in _names(each.annotation) & others
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_own(node.value):
                name = owner.fields.get(node.value.attr)
                if name in others:
                    known[node.targets[0].id] = name
        for node in ast.walk(function):
            if not isinstance(node, ast.Attribute):
                continue
            place = f"{owner.name}:{node.lineno}: {ast.unparse(node)}"
            if _type_of(node.value, owner, known) in others:
                found.references.append(place)
            elif isinstance(node.value, ast.Attribute) and (
                _type_of(node.value.value, owner, known) in others
            ):
                found.reach_throughs.append(place)


def _type_of(node: ast.expr, owner: _Class, known: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return known.get(node.id)
    return owner.fields.get(node.attr) if isinstance(node, ast.Attribute) and _is_own(node) else None


def _assigned_from_outside(owner: _Class, handlers: set[str]) -> Iterator[str]:
    parameters = {
        name: kinds & handlers for name, kinds in owner.parameters.items() if len(kinds & handlers) == 1
    }
    known = {name: next(iter(kinds)) for name, kinds in parameters.items()}
    for node in ast.walk(owner.node):
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Attribute) and not _is_own(target):
                kind = _type_of(target.value, owner, known)
                if kind in handlers | SHARED and kind != owner.name and not _is_plain(node.value):
                    yield f"{owner.name}:{node.lineno}: assigns {ast.unparse(target)}"


def _is_plain(value: ast.expr) -> bool:
    """Whether this is certainly no function: a literal, a number, a time."""
    if isinstance(value, ast.Constant | ast.UnaryOp | ast.BinOp | ast.Compare | ast.List | ast.Dict):
        return True
    if isinstance(value, ast.Name):
        return value.id.endswith("_us")
    return isinstance(value, ast.Call) and ast.unparse(value.func).endswith("_us")


def _declared_hooks(owner: _Class) -> Iterator[str]:
    for node in ast.walk(owner.constructor) if owner.constructor is not None else ():
        if (
            isinstance(node, ast.AnnAssign)
            and _is_own(node.target)
            and ast.unparse(node.annotation).startswith("Callable")
            and not (isinstance(node.value, ast.Name) and node.value.id in owner.parameters)
        ):
            yield f"{owner.name}:{node.lineno}: declares {ast.unparse(node.target)}"


def main(arguments: list[str]) -> None:
    """Print the figures of a directory, and with `--all` every place."""
    directories = [each for each in arguments if not each.startswith("-")]
    default = Path(__file__).parents[2] / "src" / "braid" / "broker"
    found = figures_of_directory(Path(directories[0]) if directories else default)
    if "--all" in arguments:
        print("\n".join([*found.references, *found.reach_throughs, *found.hooks]))
    print(found.summary())


if __name__ == "__main__":
    main(sys.argv[1:])
