"""Who hears of which internal event of a broker, in which order.

All brokers have the same table; nobody is attached later. `message_table.py` says which handler gets which
message, and `composition.py` how handlers are put together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braid.broker import events as told

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["HEARERS"]

HEARERS: Mapping[type[told.Event], Sequence[told.Hearer]] = {
    # Connections.
    told.Entered: (
        lambda broker, event: broker.draining.entered(event),
        lambda broker, event: broker.refuges.entered(event),
    ),
    told.ConnectionEnded: (
        lambda broker, event: broker.publish.ways.forget(),
        lambda broker, event: broker.turns.forget(event.connection),
    ),
    told.LinkLost: (
        lambda broker, event: broker.links.lost(event),
        lambda broker, event: broker.resumptions.link_lost(event),
        lambda broker, event: broker.reconfigurations.link_lost(event),
        lambda broker, event: broker.replacements.link_lost(event),
    ),
    told.SoftLinkEnded: (lambda broker, event: broker.mesh.ended(event),),
    told.ClientLeft: (
        lambda broker, event: broker.durables.client_left(event),
        lambda broker, event: broker.subscriptions.client_left(event),
        lambda broker, event: broker.handshake.left(event),
        lambda broker, event: broker.turn.client_left(event),
        lambda broker, event: broker.publish.client_left(event),  # what it published goes its way
    ),
    told.Detached: (lambda broker, event: broker.links.left(event),),
    told.DialFailed: (
        lambda broker, event: broker.dialling.failed(event),
        lambda broker, event: broker.mesh.dial_failed(event),
        lambda broker, event: broker.reconfigurations.dial_failed(event),
    ),
    # Links.
    told.LinkBegun: (
        lambda broker, event: broker.maps.meet(event),
        lambda broker, event: broker.loads.begin_anew(event),
        lambda broker, event: broker.mesh.make_room(
            event
        ),  # by the loads, before the map shows whose place it takes
        lambda broker, event: broker.link_states.begin_anew(event),
        lambda broker, event: broker.maps.changed(event),
        lambda broker, event: broker.link_states.tell_neighbour(event),
        lambda broker, event: broker.durables.lost.link_begun(event),
        lambda broker, event: broker.durables.copies.link_begun(event),
        lambda broker, event: broker.durables.kept_copies.link_begun(event),
        lambda broker, event: broker.subscriptions.synchronise(event),
        lambda broker, event: broker.reconfigurations.link_begun(event),
        lambda broker, event: broker.replacements.link_begun(event),
        lambda broker, event: broker.replica_progress.link_begun(event),
        lambda broker, event: broker.resumptions.link_begun(event),
    ),
    told.NameTaken: (lambda broker, event: broker.replacements.name_taken(event),),
    told.LinkOpening: (
        lambda broker, event: broker.resumptions.opening(event),
        lambda broker, event: broker.replica_progress.opening(event),
        lambda broker, event: broker.subscriptions.drop_stale(event),
        lambda broker, event: broker.maps.complete(event),
    ),
    told.InterestKnown: (lambda broker, event: broker.acquaintances.known(event),),
    told.CaughtUp: (lambda broker, event: broker.links.tell_reach(event),),
    told.TrackLost: (lambda broker, event: broker.links.track_lost(event),),
    told.LinkAbandoned: (lambda broker, event: broker.subscriptions.abandon(event),),
    told.LinkRemoved: (
        lambda broker, event: broker.resumptions.link_removed(event),
        lambda broker, event: broker.replica_progress.link_removed(event),
        lambda broker, event: broker.subscriptions.remove_link(event),
        lambda broker, event: broker.maps.lose(event),
        lambda broker, event: broker.link_states.changed(event),
    ),
    told.NeighbourGone: (
        lambda broker, event: broker.acquaintances.gone(event),
        lambda broker, event: broker.durables.lost.gone(event),
        lambda broker, event: broker.durables.copies.gone(event),
        lambda broker, event: broker.durables.kept_copies.gone(event),
    ),
    # Operations.
    told.Joined: (lambda broker, event: broker.reconfigurations.joined(event),),
    told.JoinLost: (lambda broker, event: broker.reconfigurations.join_lost(event),),
    told.OperationEnded: (lambda broker, event: broker.exchanges.operation_ended(event),),
    told.PlaceChanged: (
        lambda broker, event: broker.maps.place_changed(event),
        lambda broker, event: broker.link_states.changed(event),
    ),
    told.PlaceEnded: (lambda broker, event: broker.acquaintances.ended(event),),
    told.PublicationsHeld: (lambda broker, event: broker.turns.hold(event),),
    told.PublicationsResumed: (
        lambda broker, event: broker.turns.resume(event),
        lambda broker, event: broker.publish.release_all(broker.connections.clients),
    ),
    told.CopyStranded: (lambda broker, event: broker.delegated.stranded(event),),
    told.ReachChanged: (
        lambda broker, event: broker.subscriptions.links_changed(event),
        lambda broker, event: broker.link_states.look_again(event),
        lambda broker, event: broker.delegated.look_again(event),
        lambda broker, event: broker.refuges.changed(event),
    ),
    told.Ready: (
        lambda broker, event: broker.delegated.look_again(event),
        lambda broker, event: broker.publish.release_all(broker.connections.clients),
    ),
    # Publications and subscriptions.
    told.LeftOut: (lambda broker, event: broker.discards.left_out(event),),
    told.Advertised: (lambda broker, event: broker.publish.release(event.client),),
    told.Installed: (
        lambda broker, event: broker.subscriptions.installed(event),
        lambda broker, event: broker.durables.installed(event),
    ),
    told.NotInstalled: (
        lambda broker, event: broker.subscriptions.not_installed(event),
        lambda broker, event: broker.durables.not_installed(event),
    ),
    told.Announced: (
        lambda broker, event: broker.subscriptions.announced(event),
        lambda broker, event: broker.links.announced(event),
    ),
    told.AnythingExpected: (lambda broker, event: broker.publish.expected(event),),
    told.NeighboursTold: (lambda broker, event: broker.completeness.tell(event),),
    # Maps and soft links.
    told.MapChanged: (
        lambda broker, event: broker.link_states.name_again(event),
        lambda broker, event: broker.loads.keep_those_in_sight(event),
        lambda broker, event: broker.maps.tell_neighbours(event),
        lambda broker, event: broker.mesh.map_changed(event),
        lambda broker, event: broker.mesh.rebuild(event),  # when it is known which soft links stay
        lambda broker, event: broker.delegated.look_again(event),
    ),
    told.SoftLinksChanged: (
        lambda broker, event: broker.mesh.rebuild(event),
        lambda broker, event: broker.link_states.changed(event),
    ),
    told.SoftLinkLost: (lambda broker, event: broker.publish.back_to_the_tree(event),),
}
"""Who hears of which event, in which order."""
