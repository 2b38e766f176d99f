"""Is whoever waits for confirmations released by its own, and not by those of others?"""

from __future__ import annotations

from braid.broker.confirmations import Outstanding


def test_who_is_released_may_advertise_and_waits_for_that() -> None:
    outstanding = Outstanding()
    released: list[str] = []

    def advertise_more() -> None:
        released.append("first")
        outstanding.told_advertisement("b", 2)
        outstanding.follow(lambda: released.append("second"), session=True)

    outstanding.told_advertisement("a", 1)
    outstanding.follow(advertise_more, session=True)
    outstanding.confirmed(1)
    assert released == ["first"]
    outstanding.confirmed(2)
    assert released == ["first", "second"]


def test_what_waits_is_released_in_order_and_never_early() -> None:
    outstanding = Outstanding()
    released: list[int] = []
    for request in (1, 2, 3):
        outstanding.told_advertisement(str(request), request)
        outstanding.follow(lambda request=request: released.append(request), session=True)
    outstanding.confirmed(2)
    outstanding.confirmed(3)
    assert released == []
    outstanding.confirmed(1)
    assert released == [1, 2, 3]


def test_a_lost_session_moves_those_who_wait_and_copies_nobody() -> None:
    outstanding = Outstanding()
    released: list[str] = []
    outstanding.told_advertisement("a", 1)
    outstanding.follow(lambda: released.append("a"), session=True)
    for session in range(2, 6):
        outstanding.session_lost()
        assert not outstanding.confirmed(1)
        outstanding.told_advertisement("a", session)
        outstanding.session_begun()
    assert released == []
    outstanding.confirmed(5)
    assert released == ["a"]
