"""Who leads a life on? Rules about the stages of links, clients and soft links, read from the syntax tree."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.house.rules import Module

__all__ = ["OWNERS", "stages_are_assigned_by_the_table", "steps_are_taken_by_their_owner"]

# Where the one assignment is: the stage that a life begins in, and the one that the table says follows.
ASSIGNERS = {
    ("braid.broker.parties", "Party.__init__"),
    ("braid.broker.parties", "Party.step"),
    ("braid.broker.operations", "Operation.step"),
    ("braid.broker.delta_moves", "_Move.__init__"),
    ("braid.broker.delta_moves", "_Move.step"),
    ("braid.broker.exchanges", "_Exchange.step"),
}

# The steps of each life, and the modules that may name them: the table itself and its owner.
OWNERS = {
    "LinkStep": {"braid.broker.link_life", "braid.broker.links", "braid.broker.link_changes"},
    "OperationStep": {
        "braid.broker.operation_life",
        "braid.broker.operations",
        "braid.broker.reconfigurations",
        "braid.broker.precopy",
    },
    "MoveStep": {"braid.broker.delta_move_life", "braid.broker.delta_moves"},
    "ExchangeStep": {"braid.broker.exchange_life", "braid.broker.exchanges"},
    "ClientStep": {"braid.broker.client_life", "braid.broker.parties"},
    "SoftLinkStep": {"braid.broker.soft_link_life", "braid.broker.soft_links"},
}


def stages_are_assigned_by_the_table(module: Module) -> list[str]:
    """Nothing assigns a `stage`, or sets it in another way, but `Party` by its table."""
    if module.room != "broker":
        return []
    complaints = []
    for place, node in _within(module.tree):
        if _assigns(node, "stage") and (module.name, place) not in ASSIGNERS:
            line = getattr(node, "lineno", 0)
            complaints.append(f"{module.name}:{line}: {place or 'the module'} assigns a stage")
    return complaints


def steps_are_taken_by_their_owner(module: Module) -> list[str]:
    """Only the owner of a life names its steps, so nobody else can take one."""
    complaints = []
    for node in ast.walk(module.tree):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if name in OWNERS and module.name not in OWNERS[name]:
            complaints.append(f"{module.name}:{node.lineno}: names {name}, which belongs to its owner")
    return complaints


def _assigns(node: ast.AST, attribute: str) -> bool:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target] if node.value is not None else []
    elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("setattr", "__setattr__"):
        return any(isinstance(each, ast.Constant) and each.value == attribute for each in node.args)
    parts = [part for target in targets for part in ast.walk(target)]
    return any(
        isinstance(part, ast.Attribute) and part.attr == attribute and isinstance(part.ctx, ast.Store)
        for part in parts
    )


def _within(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Every node, with the dotted name of the class and function that it stands in."""
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        place, node = waiting.pop()
        yield place, node
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            place = f"{place}.{node.name}" if place else node.name
        waiting.extend((place, child) for child in ast.iter_child_nodes(node))
