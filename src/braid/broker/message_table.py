"""Which handler of a broker gets which message from a client, a link or anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braid.broker.link_life import LinkStage
from braid.broker.parties import Client, Link, SoftLink
from braid.errors import RemoteProtocolError
from braid.protocol.changes import (
    AvoidShortcuts,
    ChangeAbort,
    ChangeCommit,
    ChangeDone,
    ChangeFinish,
    ChangeMoving,
    ChangeReady,
    ChangeRequest,
    MoveEntries,
    MoveInUse,
    MoveLast,
    ShortcutsAvoided,
    UseShortcuts,
)
from braid.protocol.copies import (
    CopiesTold,
    CopyBegin,
    CopyDrop,
    CopyFetch,
    CopyKept,
    CopyLeft,
    CopyMark,
    CopyNeedless,
    CopyRows,
    CopySafe,
)
from braid.protocol.messages import (
    Acknowledge,
    AcknowledgeDurable,
    Acknowledgement,
    Advertise,
    Ask,
    CreateDurable,
    Done,
    DropDurable,
    Failed,
    Goodbye,
    Introduction,
    LinkState,
    Loads,
    LogStatus,
    Nearby,
    Ping,
    PinLog,
    Pong,
    PublishDiscarded,
    PublishRefused,
    Reach,
    Refused,
    Replay,
    Separate,
    Settled,
    SoftWord,
    StopReading,
    Subscribe,
    SubscribeDurable,
    SyncBegin,
    TablesComplete,
    TablesIncomplete,
    Unadvertise,
    Unsubscribe,
)
from braid.protocol.organising import (
    ExchangeEnd,
    ExchangeRequest,
    ExchangeTurn,
    LinkRequest,
    TopologyNews,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from braid.broker.composition import Composition
    from braid.broker.parties import Party

    Handler: TypeAlias = Callable[[Any, Any], None]
    Handlers: TypeAlias = Mapping[type, Callable[[Any], Handler]]

__all__ = ["OF_ANYBODY", "OF_PARTIES", "handler_of"]


def handler_of(broker: Composition, party: Party, kind: type) -> Handler:
    """Who handles this kind of message from a party.

    Raises:
        RemoteProtocolError: it makes no sense there.
    """
    special = OF_PARTIES.get(type(party), _OF_LINKS)
    handler = OF_ANYBODY.get(kind) or special.get(kind)
    if party.stage in (LinkStage.LEAVING, LinkStage.GONE) and kind not in (*OF_ANYBODY, MoveLast):
        return _nothing  # its other end may not have heard yet that another link has its place
    if handler is None:
        raise RemoteProtocolError(f"a {kind.__name__} makes no sense here")
    return handler(broker)


OF_ANYBODY: Handlers = {
    Ping: lambda broker: broker.liveness.pinged,
    Pong: lambda broker: _each_of(broker.liveness.answered, broker.loads.answered),
    LinkState: lambda broker: broker.link_states.hear,
    Settled: lambda broker: broker.turn.settled_apart,
    Acknowledgement: lambda broker: broker.turn.acknowledged,
    Goodbye: lambda broker: broker.endings.goodbye,
    Refused: lambda broker: _each_of(broker.endings.refused, broker.replacements.refused),
}
_OF_CLIENTS: Handlers = {
    Subscribe: lambda broker: broker.subscriptions.subscribe_client,
    Unsubscribe: lambda broker: broker.streams.unsubscribe,
    Separate: lambda broker: broker.streams.separate,
    Advertise: lambda broker: broker.subscriptions.advertise_client,
    Unadvertise: lambda broker: broker.subscriptions.unadvertise_client,
    SubscribeDurable: lambda broker: broker.durables.lost.when_known(broker.durables.subscribe),
    Acknowledge: lambda broker: broker.durables.acknowledge,
    Replay: lambda broker: broker.durables.lost.when_known(broker.durables.replay),
    DropDurable: lambda broker: broker.durables.lost.when_known(broker.durables.drop),
    CreateDurable: lambda broker: broker.durables.lost.when_known(broker.durables.owners.create),
    LogStatus: lambda broker: broker.durables.lost.when_known(broker.durables.owners.status),
    AcknowledgeDurable: lambda broker: broker.durables.lost.when_known(broker.durables.owners.acknowledge),
    PinLog: lambda broker: broker.durables.lost.when_known(broker.durables.owners.pin),
    StopReading: lambda broker: broker.durables.stop,
    Ask: lambda broker: broker.operator.ask,
}
_OF_SOFT_LINKS: Handlers = {
    PublishDiscarded: lambda broker: broker.discards.further_on,
    PublishRefused: lambda broker: broker.discards.further_on,
}
_OF_LINKS: Handlers = {
    Unsubscribe: lambda broker: broker.copying.unsubscribed,
    Advertise: lambda broker: broker.copying.advertised,
    Unadvertise: lambda broker: broker.copying.unadvertised,
    CopyKept: lambda broker: broker.durables.lost.kept,
    CopiesTold: lambda broker: broker.durables.lost.told,
    CopyBegin: lambda broker: broker.durables.kept_copies.begin,
    CopyRows: lambda broker: broker.durables.copy_rows,
    CopySafe: lambda broker: broker.durables.copies.safe,
    CopyMark: lambda broker: broker.durables.kept_copies.mark,
    CopyDrop: lambda broker: broker.durables.kept_copies.drop,
    CopyFetch: lambda broker: broker.durables.kept_copies.fetch,
    CopyLeft: lambda broker: broker.durables.left_copies.asked,
    CopyNeedless: lambda broker: broker.durables.left_copies.answered,
    Done: lambda broker: broker.subscriptions.done,
    Failed: lambda broker: broker.subscriptions.failed,
    SyncBegin: lambda broker: broker.links.sync_begins,
    TablesComplete: lambda broker: broker.links.tables_complete,
    TablesIncomplete: lambda broker: broker.links.tables_incomplete,
    Reach: lambda broker: broker.links.reaches,
    Nearby: lambda broker: broker.maps.hear_nearby,
    Loads: lambda broker: broker.loads.hear,
    Introduction: lambda broker: broker.acquaintances.introduced,
    SoftWord: lambda broker: broker.handshake.heard_word,
    TopologyNews: lambda broker: broker.topology.heard,
    LinkRequest: lambda broker: broker.topology.asked,
    ExchangeRequest: lambda broker: broker.exchanges.requested,
    ExchangeTurn: lambda broker: broker.exchanges.its_turn,
    ExchangeEnd: lambda broker: broker.exchanges.ended,
    ChangeRequest: lambda broker: broker.reconfigurations.requested,
    ChangeReady: lambda broker: broker.reconfigurations.ready,
    ChangeCommit: lambda broker: broker.reconfigurations.committed,
    ChangeDone: lambda broker: broker.reconfigurations.done,
    ChangeFinish: lambda broker: broker.reconfigurations.finish,
    MoveLast: lambda broker: broker.reconfigurations.last,
    ChangeMoving: lambda broker: broker.reconfigurations.moving,
    ChangeAbort: lambda broker: broker.reconfigurations.aborted,
    AvoidShortcuts: lambda broker: broker.limits.heard,
    MoveEntries: lambda broker: broker.reconfigurations.entries,
    MoveInUse: lambda broker: broker.reconfigurations.in_use,
    ShortcutsAvoided: lambda broker: broker.limits.answered,
    UseShortcuts: lambda broker: broker.limits.lifted,
    **_OF_SOFT_LINKS,
}
OF_PARTIES: Mapping[type[Party], Handlers] = {Client: _OF_CLIENTS, SoftLink: _OF_SOFT_LINKS, Link: _OF_LINKS}


def _nothing(party: Any, message: Any) -> None:
    """What has no meaning any more."""


def _each_of(*handlers: Handler) -> Handler:
    """Several who handle the same message, in this order."""

    def handle(party: Any, message: Any) -> None:
        for handler in handlers:
            handler(party, message)

    return handle
