"""How are plans and trees written down?

As JSON, one format for whoever makes plans and whoever carries them out:

    {"braid_plan": 1,
     "start": {"links": [["A", "B"], ["B", "C"]]},
     "steps": [{"step": "shift", "moving": "A", "old": "B", "new": "C"}],
     "goal": {"links": [["A", "C"], ["B", "C"]]},
     "addresses": {"D": "10.0.0.4:7000"}}

A tree of a single broker has no links and says `"brokers": ["A"]`. `addresses` are those of brokers that come
to the network by an APPEND. What is wrong with a file is said with its name and the place in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec

from braid.errors import ConfigurationError
from braid.reconfiguration.plans import Plan
from braid.reconfiguration.primitives import Append, Detach, Shift
from braid.reconfiguration.trees import OverlayTree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from braid.reconfiguration.primitives import Step

__all__ = ["PLAN_VERSION", "WrittenPlan", "decode_plan", "decode_tree", "encode_plan", "encode_tree"]

PLAN_VERSION = 1

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Decoded = TypeVar("Decoded")


class _Tree(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    links: list[tuple[_Name, _Name]]
    brokers: list[_Name] = []
    addresses: dict[_Name, str] = {}


class _Append(msgspec.Struct, forbid_unknown_fields=True, tag_field="step", tag="append"):
    broker: _Name
    neighbour: _Name


class _Detach(msgspec.Struct, forbid_unknown_fields=True, tag_field="step", tag="detach"):
    broker: _Name
    neighbour: _Name


class _Shift(msgspec.Struct, forbid_unknown_fields=True, tag_field="step", tag="shift"):
    moving: _Name
    old: _Name
    new: _Name


class _Plan(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    braid_plan: Annotated[int, msgspec.Meta(ge=1, le=PLAN_VERSION)]
    start: _Tree
    steps: list[_Append | _Detach | _Shift]
    goal: _Tree
    addresses: dict[_Name, str] = {}


@dataclass(frozen=True, slots=True)
class WrittenPlan:
    """A plan and what is written down beside it."""

    plan: Plan
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Where brokers listen that are appended."""


def encode_tree(tree: OverlayTree) -> bytes:
    """A tree as a file."""
    return _pretty(msgspec.json.encode(_tree(tree)))


def decode_tree(data: bytes, where: str) -> tuple[OverlayTree, dict[str, str]]:
    """The tree that a file holds, and the addresses that it names.

    Raises:
        ConfigurationError: something is wrong with it; `where` names the file.
    """
    read = _decode(data, _Tree, where, "a tree")
    return _tree_of(read, where, "the tree"), read.addresses


def encode_plan(written: WrittenPlan) -> bytes:
    """A plan as a file."""
    plan = written.plan
    return _pretty(
        msgspec.json.encode(
            _Plan(
                PLAN_VERSION,
                _tree(plan.start),
                [_written(step) for step in plan.steps],
                _tree(plan.goal),
                dict(written.addresses),
            )
        )
    )


def decode_plan(data: bytes, where: str) -> WrittenPlan:
    """The plan that a file holds, with every step checked.

    Raises:
        ConfigurationError: something is wrong with it; `where` names the file.
    """
    read = _decode(data, _Plan, where, "a plan")
    start, goal = _tree_of(read.start, where, "start"), _tree_of(read.goal, where, "goal")
    steps: list[Step] = []
    for each in read.steps:
        if isinstance(each, _Shift):
            steps.append(Shift(each.moving, each.old, each.new))
        else:
            steps.append((Append if isinstance(each, _Append) else Detach)(each.broker, each.neighbour))
    try:
        return WrittenPlan(Plan(start, steps, goal), read.addresses)
    except ConfigurationError as problem:
        raise ConfigurationError(f"{where}: {problem}") from None


def _decode(data: bytes, kind: type[Decoded], where: str, what: str) -> Decoded:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise ConfigurationError(f"{where} is not {what}: {problem}") from None


def _tree(tree: OverlayTree) -> _Tree:
    return _Tree(sorted(tree.links), [] if tree.links else list(tree.brokers))


def _tree_of(read: _Tree, where: str, what: str) -> OverlayTree:
    try:
        return OverlayTree(read.links, read.brokers)
    except ConfigurationError as problem:
        raise ConfigurationError(f"{where}: {what}: {problem}") from None


def _written(step: Step) -> _Append | _Detach | _Shift:
    if isinstance(step, Shift):
        return _Shift(step.moving, step.old, step.new)
    return (_Append if isinstance(step, Append) else _Detach)(step.broker, step.neighbour)


def _pretty(data: bytes) -> bytes:
    return msgspec.json.format(data, indent=2) + b"\n"
