"""In which order does a client try addresses?"""

from __future__ import annotations

from braid.client.addresses import LOOK_US_MIN, Addresses


def tried(addresses: Addresses, count: int) -> list[str]:
    found = []
    for _ in range(count):
        found.append(addresses.take())
        addresses.lost()
    return found


def connected(*given: str) -> Addresses:
    addresses = Addresses(given)
    addresses.take()
    addresses.welcomed("F", 0)
    return addresses


def test_given_addresses_are_tried_in_turn() -> None:
    assert tried(Addresses(["f:1", "g:1"]), 5) == ["f:1", "g:1", "f:1", "g:1", "f:1"]


def test_refuges_are_tried_when_those_have_failed_twice() -> None:
    addresses = connected("f:1")
    addresses.told([("A", "a:1"), ("B", "b:1")])
    addresses.lost()
    found = tried(addresses, 6)
    assert found[0] == "f:1"
    assert set(found[1:]) == {"f:1", "a:1", "b:1"}


def test_home_is_where_the_name_is() -> None:
    addresses = connected("f:1")
    addresses.told([("A", "a:1")])
    addresses.lost()
    while addresses.take() != "a:1":
        addresses.lost()
    addresses.welcomed("A", 0)
    assert addresses.away
    addresses.told([("B", "b:1")])
    assert not addresses.go_home()
    addresses.told([("B", "b:1"), ("F", "r:1")])
    assert addresses.go_home()
    addresses.lost()
    assert addresses.take() == "r:1"
    addresses.welcomed("F", 0)
    assert not addresses.away
    assert not addresses.go_home()


def test_one_that_is_at_home_does_not_go_there() -> None:
    addresses = connected("f:1")
    addresses.told([("F", "elsewhere:1")])
    assert not addresses.go_home()


def test_what_a_broker_tells_is_bounded() -> None:
    addresses = connected("f:1")
    addresses.told([(f"N{number}", f"n:{number}") for number in range(1000)] + [("L", "x" * 301), ("E", "")])
    assert len(set(tried(addresses, 2000))) == 17


def test_home_is_looked_for_from_a_refuge_that_does_not_know_it() -> None:
    addresses = connected("f:1")
    addresses.told([("A", "a:1")])
    addresses.lost()
    while addresses.take() != "a:1":
        addresses.lost()
    addresses.welcomed("A", 1_000)
    assert addresses.look_at_us == 1_000 + LOOK_US_MIN
    assert not addresses.look(LOOK_US_MIN)
    assert addresses.look(1_000 + LOOK_US_MIN)
    addresses.lost()
    found = tried(addresses, 4)
    assert found[0] == "f:1"
    assert "a:1" in found
    addresses.take()
    addresses.welcomed("A", 0)
    assert addresses.look_at_us == 2 * LOOK_US_MIN
