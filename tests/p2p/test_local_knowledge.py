"""A peer learns only from messages: no state is shared by modules, and DMM does not look behind the DHT."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import braid.p2p
from braid.p2p.dht.interface import Dht

ROOM = Path(braid.p2p.__file__).parent
FILES = sorted(ROOM.rglob("*.py"))
DMM = sorted((ROOM / "dmm").glob("*.py"))
FOR_APPLICATIONS = {
    "changes", "following", "neighbours", "own", "owner", "patience_us", "responsible", "route", "send",
    "suspect",
}  # fmt: skip
# Which DHTs are installed is found when a process starts, and says nothing about peers.
STARTED_WITH = {"dht/__init__.py": ["OTHER_DHTS[...]"]}
MUTATING = {"add", "append", "clear", "extend", "insert", "pop", "remove", "setdefault", "update"}


def shared_state(source: str) -> list[str]:
    """What a module's functions change of what belongs to the module."""
    tree = ast.parse(source)
    names = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    found = [
        f"global {name}" for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id in names and node.func.attr in MUTATING:
                found.append(f"{owner.id}.{node.func.attr}")
        changed = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del)
        if changed and getattr(node.value, "id", "") in names:  # type: ignore[attr-defined]
            found.append(f"{ast.unparse(node.value)}[...]")  # type: ignore[attr-defined]
        if isinstance(node, ast.ImportFrom | ast.Import) and "lru_cache" in ast.unparse(node):
            found.append("lru_cache")
    return found


def behind_the_dht(source: str) -> list[str]:
    """What a module uses of a DHT beyond what is meant for applications."""
    tree = ast.parse(source)
    found = []
    for node in ast.walk(tree):
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        if module.startswith("braid.p2p.dht") and not module.endswith(("identifiers", "interface")):
            found.append(f"imports {module}")
        if isinstance(node, ast.Attribute):
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if name in ("dht", "_dht") and node.attr not in FOR_APPLICATIONS:
                found.append(f"{name}.{node.attr}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOM)))
def test_modules_hold_no_state(path: Path) -> None:
    allowed = STARTED_WITH.get(str(path.relative_to(ROOM)), [])
    assert shared_state(path.read_text()) == allowed


@pytest.mark.parametrize("path", DMM, ids=lambda path: path.name)
def test_dmm_uses_a_dht_by_its_interface(path: Path) -> None:
    assert behind_the_dht(path.read_text()) == []


def test_the_rules_find_what_they_are_for() -> None:
    assert shared_state("KNOWN = {}\ndef learn(peer):\n    KNOWN[peer] = 1\n") == ["KNOWN[...]"]
    assert shared_state("peers = []\ndef learn(peer):\n    peers.append(peer)\n") == ["peers.append"]
    assert shared_state("count = 0\ndef f():\n    global count\n") == ["global count"]
    assert behind_the_dht("from braid.p2p.dht.pastry import Pastry\n") == ["imports braid.p2p.dht.pastry"]
    assert behind_the_dht("def f(site):\n    return site.dht.leaves\n") == ["dht.leaves"]
    assert set(dir(Dht)) >= FOR_APPLICATIONS
