"""Do real and simulated brokers call the messages on their links the same?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import msgspec
import pytest

from braid.protocol import Frame
from braid.protocol.effects import Greeted, Send
from braid.protocol.inputs import Received, Tick
from braid.protocol.messages import PROTOCOL_VERSION, Hello, Message
from braid.runtime.tracing import NodeTracing
from braid.sim.samples import Meter
from braid.trace import TraceWriter, read_table
from tests.trace.calls import batch_of
from tests.trace.test_node_tracing import statistics

if TYPE_CHECKING:
    from pathlib import Path

    from braid.protocol.codec import Body

# What cost_over_time looks for; written out here, because names that are derived follow any mistake.
PRICED = {
    "publication",
    "topology_news",
    "link_request",
    "change_request",
    "change_ready",
    "change_commit",
    "change_done",
    "change_finish",
    "change_abort",
    "change_moving",
    "move_entries",
    "move_in_use",
    "move_last",
    "avoid_shortcuts",
    "shortcuts_avoided",
    "use_shortcuts",
    "exchange_request",
    "exchange_turn",
    "exchange_end",
}


def some_value(kind: msgspec.inspect.Type) -> Any:
    """A value of a type, as small as it gets."""
    simple = {
        msgspec.inspect.StrType: "",
        msgspec.inspect.IntType: 0,
        msgspec.inspect.FloatType: 0.0,
        msgspec.inspect.BoolType: False,
        msgspec.inspect.BytesType: b"",
        msgspec.inspect.DictType: {},
        msgspec.inspect.VarTupleType: (),
    }
    if isinstance(kind, msgspec.inspect.TupleType):
        return tuple(map(some_value, kind.item_types))
    if isinstance(kind, msgspec.inspect.StructType):
        return some_message(kind.cls)
    return simple.get(type(kind), [])


def some_message(kind: type) -> Any:
    found = msgspec.inspect.type_info(kind)
    assert isinstance(found, msgspec.inspect.StructType)
    return kind(**{each.name: some_value(each.type) for each in found.fields if each.required})


def all_bodies() -> list[Body]:
    return [batch_of("p", [1]), *map(some_message, get_args(Message))]


def kinds_of_a_real_broker(directory: Path, bodies: list[Body]) -> list[str]:
    trace = NodeTracing(TraceWriter(directory, "A"), "A", statistics)
    hello = Frame(0, Hello(PROTOCOL_VERSION, "broker", "B", "i"))
    trace.turn(Received(1, [hello]), [Greeted(1, 10, "broker", "B")], 1_000_000)
    for turn, body in enumerate(bodies):
        trace.turn(Tick(), [Send(1, [Frame(0, body)])], 1_000_010 + turn)
    trace.close(2_500_000)
    return sorted(read_table(directory, "link_sample")["kind"].to_pylist())


def kinds_of_the_simulator(directory: Path, bodies: list[Body]) -> list[str]:
    writer = TraceWriter(directory, "A")
    meter = Meter("A", "B", "primary", writer)
    meter.arrived([Frame(0, body) for body in bodies], 2, 1)
    writer.close()
    return sorted(meter.messages)


def test_both_drivers_have_one_name_for_every_message(tmp_path: Path) -> None:
    bodies = all_bodies()
    real = kinds_of_a_real_broker(tmp_path / "real", bodies)
    assert real == kinds_of_the_simulator(tmp_path / "simulated", bodies)
    assert len(real) == len(bodies)
    assert set(real) >= PRICED


def test_what_is_priced_is_what_messages_are_called() -> None:
    pytest.importorskip("pyspark")
    from braid.pipeline.metrics.cost import COMPONENTS

    # `shift` stands for the messages of an exchange where trees are priced without brokers.
    assert {kind for kinds in COMPONENTS.values() for kind in kinds} - {"shift"} == PRICED
