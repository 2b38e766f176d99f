"""Who must go when the access policy changes, tokens expire, or certificates are looked at again?"""

from __future__ import annotations

from typing import Any

import pytest

from braid.broker.access import AccessPolicy, Grant, Limits, Principal, hashed_token
from braid.broker.access_review import ADDRESSES_MAX, WRONG_TOKEN_US_MAX, WrongTokens
from braid.broker.core import BrokerCore
from braid.broker.settings import BrokerSettings
from braid.language import Filter
from braid.protocol import Frame
from braid.protocol.effects import Close, Note, Reload, Send
from braid.protocol.inputs import Input, Opened, Received, Reconfigured, Tick
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Ask,
    Done,
    Failed,
    Goodbye,
    Hello,
    Message,
    Refused,
    Subscribe,
    Welcome,
)

EVERYTHING = Filter("TRUE")


def policy(
    till: str | None = "TRUE", expires_us: int | None = None, certificates: dict[str, str] | None = None
) -> AccessPolicy:
    """An operator, and (unless None) a till that may subscribe to this."""
    principals = {"op": Principal("op", Grant(EVERYTHING, EVERYTHING, operate=True))}
    tokens = {hashed_token("op"): "op"}
    if till is not None:
        principals["till"] = Principal("till", Grant(EVERYTHING, Filter(till)))
        tokens[hashed_token("till")] = "till"
    expiries = {hashed_token("till"): expires_us} if expires_us is not None else {}
    return AccessPolicy(principals, tokens, certificates or {}, None, expiries)


class Door:
    """A broker with clients, by connection."""

    def __init__(self, access: AccessPolicy) -> None:
        self.now_us = 1_000_000
        self.core = BrokerCore(
            BrokerSettings(broker_id="A", address="A"), incarnation="A-1", seed=1, access=access
        )
        self.heard: dict[int, list[Message]] = {}
        self.closed: set[int] = set()
        self.reloads: list[int] = []
        self.audit: list[Note] = []
        self._sent: dict[int, int] = {}
        self.tell(Tick())

    def tell(self, stimulus: Input) -> None:
        for effect in self.core.handle(stimulus, self.now_us):
            if isinstance(effect, Send):
                self.heard.setdefault(effect.connection, []).extend(
                    frame.body for frame in effect.frames if not isinstance(frame.body, bytes)
                )
            elif isinstance(effect, Close):
                self.closed.add(effect.connection)
            elif isinstance(effect, Reload):
                self.reloads.append(effect.token)
            elif isinstance(effect, Note) and effect.audit:
                self.audit.append(effect)

    def client(
        self, connection: int, token: str | None, *, remote: str = "", certificate: str | None = None
    ) -> int:
        remote = remote or f"127.0.0.1:{connection}"
        self.heard[connection], self._sent[connection] = [], 0
        self.tell(Opened(connection, remote, certificate=certificate))
        hello = Hello(PROTOCOL_VERSION, "client", f"c{connection}", "1", token, credit=1 << 20)
        self.tell(Received(connection, [Frame(0, hello)]))
        return connection

    def ask(self, connection: int, message: Message) -> None:
        self._sent[connection] += 1
        self.tell(Received(connection, [Frame(self._sent[connection], message)]))

    def said(self, connection: int, kind: type) -> list[Any]:
        return [message for message in self.heard[connection] if isinstance(message, kind)]

    def pass_time(self, us: int) -> None:
        end_us = self.now_us + us
        while self.now_us < end_us:
            due_us = self.core.next_deadline_us()
            assert due_us is not None
            self.now_us = min(max(due_us, self.now_us + 1), end_us)
            self.tell(Tick())


def test_a_principal_that_is_gone_is_sent_away_with_a_reason() -> None:
    door = Door(policy())
    operator, till = door.client(1, "op"), door.client(2, "till")
    door.tell(Reconfigured(access=policy(till=None)))
    assert [refused.code for refused in door.said(till, Refused)] == ["authentication"]
    assert door.closed == {till}
    again = door.client(3, "till")
    assert not door.said(again, Welcome)
    assert door.said(operator, Welcome)


def test_a_client_whose_grant_is_narrowed_comes_again_and_hears_what_it_may_have() -> None:
    door = Door(policy())
    till, other = door.client(2, "till"), door.client(3, "till")
    door.ask(till, Subscribe(1, "s", "price > 0"))
    door.ask(other, Subscribe(1, "s", "shop = 7"))
    door.tell(Reconfigured(access=policy(till="shop = 7")))
    assert door.said(till, Goodbye)
    assert door.closed == {till}  # the other one stays within what it may
    door.ask(other, Subscribe(2, "t", "price > 0"))
    assert [failed.code for failed in door.said(other, Failed)] == ["denied"]


def test_a_wider_grant_counts_at_once() -> None:
    door = Door(policy(till="shop = 7"))
    till = door.client(2, "till")
    door.tell(Reconfigured(access=policy()))
    door.ask(till, Subscribe(1, "s", "price > 0"))
    assert [done.request for done in door.said(till, Done)] == [1]


def test_limits_that_change_count_for_those_who_are_here() -> None:
    door = Door(policy())
    till = door.client(2, "till")
    changed = policy()
    narrow = Principal("till", changed.principals["till"].grant, Limits(subscriptions_max=1))
    changed = AccessPolicy({**changed.principals, "till": narrow}, changed.tokens)
    door.tell(Reconfigured(access=changed))
    door.ask(till, Subscribe(1, "a", "TRUE"))
    door.ask(till, Subscribe(2, "b", "TRUE"))
    assert [failed.code for failed in door.said(till, Failed)] == ["limit"]


def test_what_cannot_be_read_changes_nothing_and_says_why() -> None:
    door = Door(policy())
    operator, till = door.client(1, "op"), door.client(2, "till")
    door.ask(operator, Ask(1, "reload", {}))
    (token,) = door.reloads
    door.tell(Reconfigured(token, problem="access file x: no such key"))
    assert "no such key" in door.said(operator, Failed)[0].reason
    assert not door.closed
    door.ask(till, Subscribe(1, "s", "price > 0"))
    assert door.said(till, Done)


def test_an_operator_reloads_and_is_answered_when_it_is_done() -> None:
    door = Door(policy())
    operator, till = door.client(1, "op"), door.client(2, "till")
    door.ask(till, Ask(1, "reload", {}))
    assert not door.reloads  # not everybody may
    assert [failed.code for failed in door.said(till, Failed)] == ["denied"]
    door.ask(operator, Ask(1, "reload", {}))
    assert not door.said(operator, Done)
    door.tell(Reconfigured(door.reloads[0], policy(till=None)))
    assert '"connections_ended":1' in door.said(operator, Done)[0].text


def test_tokens_expire_at_the_door_and_inside() -> None:
    door = Door(policy(expires_us=4_000_000))
    till = door.client(2, "till")
    assert door.said(till, Welcome)
    door.pass_time(2_000_000)
    assert till not in door.closed
    door.pass_time(2_000_000)
    assert [refused.code for refused in door.said(till, Refused)] == ["authentication"]
    assert "expired" in door.said(till, Refused)[0].reason
    late = door.client(3, "till")
    assert not door.said(late, Welcome)


def test_a_token_is_not_accepted_at_the_very_moment_it_expires() -> None:
    access = policy(expires_us=10_000_000)
    assert access.authenticate("till", None, now_us=9_999_999).name == "till"
    with pytest.raises(Exception, match="expired"):
        access.authenticate("till", None, now_us=10_000_000)


def test_those_with_certificates_shake_hands_again_when_what_is_trusted_has_changed() -> None:
    door = Door(policy(certificates={"till.example": "till"}))
    by_certificate, by_token = door.client(1, None, certificate="till.example"), door.client(2, "till")
    door.tell(Reconfigured(access=policy(certificates={"till.example": "till"})))
    assert not door.closed
    door.tell(Reconfigured(access=policy(certificates={"till.example": "till"}), certificates_changed=True))
    assert door.closed == {by_certificate}
    assert door.said(by_certificate, Goodbye)
    assert not door.said(by_token, Goodbye)


def test_answers_to_wrong_tokens_get_slower_and_right_ones_do_not_wait() -> None:
    door = Door(policy())
    waited = []
    for number in range(10, 20):
        begin_us = door.now_us
        connection = door.client(number, "guess")
        while not door.said(connection, Refused):
            door.pass_time(1_000)
        waited.append(door.now_us - begin_us)
        assert door.said(door.client(number + 100, "till"), Welcome)  # from the same address
    assert waited[0] == 0
    assert waited == sorted(waited)
    assert waited[-1] >= WRONG_TOKEN_US_MAX
    elsewhere = door.client(50, "guess", remote="10.0.0.1:7")
    assert door.said(elsewhere, Refused)  # others do not wait for it


def test_a_visitor_that_waits_for_its_refusal_is_not_listened_to() -> None:
    door = Door(policy())
    door.client(1, "guess")
    waiting = door.client(2, "guess")
    hello = Hello(PROTOCOL_VERSION, "client", "c2", "1", "till", credit=1 << 20)
    door.tell(Received(waiting, [Frame(0, hello)]))
    door.pass_time(1_000_000)
    assert not door.said(waiting, Welcome)
    assert len(door.said(waiting, Refused)) == 1


def test_addresses_of_wrong_tokens_are_remembered_within_bounds() -> None:
    wrong = WrongTokens()
    for number in range(3 * ADDRESSES_MAX):
        wrong.wait_us(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:1", 1)
    assert len(wrong._addresses) == ADDRESSES_MAX
    assert wrong.wait_us("[2001:db8::1]:5".replace("[", "").replace("]", ""), 1) == 0
    assert wrong.wait_us("2001:db8::2:5", 1) > 0  # the same network


def test_the_audit_log_hears_who_came_in_who_was_refused_and_what_operators_did() -> None:
    door = Door(policy(till="shop = 7"))
    operator, till = door.client(1, "op"), door.client(2, "till")
    door.client(3, "guess")
    door.ask(till, Subscribe(1, "s", "shop = 7"))
    door.ask(till, Subscribe(2, "t", "TRUE"))
    door.ask(till, Ask(3, "detach", {}))
    door.ask(operator, Ask(1, "strategy", {"strategy": "S9"}))
    door.ask(operator, Ask(2, "statistics", {}))
    door.tell(Reconfigured(access=policy()))
    found = [(note.what, note.fields.get("principal")) for note in door.audit]
    assert found == [
        ("client connected", "op"),
        ("client connected", "till"),
        ("connection refused", None),
        ("subscription granted", "till"),
        ("request refused", "till"),
        ("operator command", "till"),
        ("request refused", "till"),
        ("operator command", "op"),
        ("operator command", "op"),
        ("reloaded", None),
    ]
