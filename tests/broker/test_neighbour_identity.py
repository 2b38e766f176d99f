"""Can anybody but the neighbour itself, or an operator, give up what waits for a neighbour?"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from braid.broker.settings import BrokerSettings
from braid.protocol import Frame
from braid.protocol.inputs import Opened, Received
from braid.protocol.memory_store import MemoryStore
from braid.protocol.messages import (
    PROTOCOL_VERSION,
    Advertise,
    Ask,
    Goodbye,
    Hello,
    Message,
    Refused,
    Subscribe,
    SubscribeDurable,
    SyncBegin,
    TablesComplete,
    Welcome,
)
from tests.broker.wire import Network, WireClient

if TYPE_CHECKING:
    from collections.abc import Sequence

STORES = [pytest.param(True, id="with a store"), pytest.param(False, id="without")]


class Stranger(WireClient):
    """Says what it likes."""

    def __init__(self, network: Network, broker: str, hello: Hello, *more: Message) -> None:
        self._hello = hello
        super().__init__(network, "stranger", broker)
        network.run(us=10_000)
        if more and self.open:
            network.from_client(self, [Frame(number, each) for number, each in enumerate(more, 1)])
            network.run(us=10_000)

    def _say(self, message: Message) -> None:
        hello = isinstance(message, Hello)
        self._network.from_client(self, [Frame(0, self._hello if hello else message)])


def hello_as(
    name: str,
    *,
    brokers: Sequence[str] = (),
    address: str = "",
    incarnation: str = "made up",
    resumes: str = "",
) -> Hello:
    return Hello(
        PROTOCOL_VERSION,
        "broker",
        name,
        incarnation,
        resumes=resumes,
        credit=1 << 22,
        brokers=list(brokers),
        address=address,
    )


def with_a_dead_neighbour(*, store: bool, b_store: bool = True) -> tuple[Network, WireClient]:
    """A keeps twenty publications for B, where a log waits for them, and which is dead."""
    network = Network()
    network.start("A", store=store)
    network.start("B", neighbours=("A",), store=b_store)
    network.run(us=2_000_000)
    if b_store:
        network.client("reader", "B").ask(SubscribeDurable(1, "log", "x > 0"))
    network.run(us=1_000_000)
    network.kill("B")
    network.run(us=10_000_000)
    publisher = network.client("p", "A")
    for number in range(1, 21):
        publisher.publish({"x": number}, acknowledged=True)
    network.run(us=10_000_000)
    assert publisher.cares == []
    return network, publisher


def require_delivered(network: Network, publisher: WireClient) -> None:
    """The real B comes back, and everything is there."""
    network.run(us=5_000_000)
    assert publisher.cares == [], "nobody has it, so nobody gets a receipt"
    network.start("B")
    network.run(us=10_000_000)
    reader = network.client("reader", "B")
    reader.ask(SubscribeDurable(2, "log", ""))
    network.run(us=10_000_000)
    assert [row.attributes["x"] for _, _, row in reader.stored] == list(range(1, 21))
    assert publisher.cares == list(range(1, 21))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(
    "more",
    [(), (SyncBegin(), TablesComplete()), (Goodbye(detach=True),)],
    ids=["hello alone", "says it wants nothing", "leaves for good"],
)
def test_a_stranger_in_a_dead_neighbours_name_gives_nothing_up(
    more: tuple[Message, ...], store: bool
) -> None:
    network, publisher = with_a_dead_neighbour(store=store)
    stranger = Stranger(network, "A", hello_as("B"), *more)
    assert [refused.code for refused in stranger.answers(Refused)] == ["identity"]
    require_delivered(network, publisher)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(
    "more", [(SyncBegin(), TablesComplete()), (Goodbye(detach=True),)], ids=["takes", "leaves"]
)
def test_what_a_broker_tells_its_clients_proves_nothing(more: tuple[Message, ...], store: bool) -> None:
    """Every client hears the incarnation of its broker, and could count its sessions."""
    network, publisher = with_a_dead_neighbour(store=store)
    told = network.client("spy", "A")
    network.run(us=10_000)
    incarnation = told.answers(Welcome)[0].incarnation
    hellos = [hello_as("B", resumes=f"{incarnation}/{number}") for number in range(1, 10)]
    # B's own, as its clients knew it while it lived.
    hellos.append(hello_as("B", incarnation="B-2"))
    for hello in hellos:
        stranger = Stranger(network, "A", hello, *more)
        assert [refused.code for refused in stranger.answers(Refused)] == ["identity"], hello
    require_delivered(network, publisher)


@pytest.mark.parametrize("store", STORES)
def test_nobody_takes_the_place_of_a_neighbour_that_is_there(store: bool) -> None:
    network = Network()
    network.start("A", store=store)
    network.start("B", neighbours=("A",), store=store)
    network.run(us=2_000_000)
    reader = network.client("reader", "B")
    reader.ask(Subscribe(1, "1", "x > 0"))
    network.run(us=1_000_000)
    for incarnation in ("made up", "B-2"):
        hello = hello_as("B", address="B", incarnation=incarnation)
        stranger = Stranger(network, "A", hello, SyncBegin(), TablesComplete())
        assert [refused.code for refused in stranger.answers(Refused)] == ["identity"]
    publisher = network.client("p", "A")
    publisher.publish({"x": 1}, acknowledged=True)
    network.run(us=1_000_000)
    assert reader.values("x") == [1]
    assert publisher.cares == [1]


def test_a_neighbour_that_never_heard_of_its_last_session_is_known_by_the_one_before() -> None:
    """It keeps no data, and nobody can dial it: the name of a session is all it can show."""
    network = Network()
    network.start("A", link_messages_max=2)
    network.start("B", neighbours=("A",))
    network.run(us=2_000_000)
    publisher = network.client("p", "A")
    known = network.cores["B"]._links.links["A"].agreed
    network.kill("B")
    network.move("B", "nowhere")
    for number in range(5):  # more waits for B than may
        publisher.ask(Advertise(number, str(number), f"x > {-number}"))
    publisher.publish({"x": 1}, acknowledged=True)
    network.run(us=10_000_000)
    link = network.cores["A"]._links.links["B"]
    assert link.agreed == ""
    assert link.channel.cares, "something waits for B"
    for _ in range(3):
        greeting = hello_as("B", incarnation="B-2", resumes=known)
        unheard = Stranger(network, "A", greeting)
        assert unheard.open, unheard.answers(Refused)
        network.leave(unheard)
        network.run(us=1_000)


def test_a_stranger_after_a_restart_gives_nothing_up() -> None:
    network, publisher = with_a_dead_neighbour(store=True)
    network.kill("A")
    network.start("A")
    network.run(us=10_000_000)
    publisher = network.client("q", "A")
    publisher.publish({"x": 5}, acknowledged=True)
    network.run(us=1_000_000)
    stranger = Stranger(network, "A", hello_as("B"), SyncBegin(), TablesComplete())
    assert [refused.code for refused in stranger.answers(Refused)] == ["identity"]
    assert publisher.cares == []


@pytest.mark.parametrize("b_store", STORES)
def test_a_neighbour_without_a_store_is_known_by_its_address(b_store: bool) -> None:
    network, publisher = with_a_dead_neighbour(store=True, b_store=b_store)
    stranger = Stranger(network, "A", hello_as("B"), SyncBegin(), TablesComplete())
    assert not stranger.open
    assert publisher.cares == []
    network.start("B")
    network.run(us=10_000_000)
    assert publisher.cares == list(range(1, 21)), "B itself says who wants them"


@pytest.mark.parametrize("b_address", ["B", "", "0.0.0.0:7000"])
def test_nobody_takes_the_place_of_a_neighbour_without_a_store_for_which_nothing_waits(
    b_address: str,
) -> None:
    """It would get, and settle, what is published while the neighbour is away."""
    network = Network()
    network.start("A", store=True)
    network.start("B", neighbours=("A",), address=b_address, expected=("C",))
    network.start("C", neighbours=("B",), store=True)
    network.run(us=3_000_000)
    network.client("reader", "C").ask(SubscribeDurable(1, "log", "x > 0"))
    network.run(us=1_000_000)
    network.kill("B")
    network.run(us=1_000_000)
    stranger = Stranger(network, "A", hello_as("B", address="elsewhere"), SyncBegin(), TablesComplete())
    assert [refused.code for refused in stranger.answers(Refused)] == ["identity"]
    publisher = network.client("p", "A")
    publisher.publish({"x": 1}, acknowledged=True)
    network.run(us=5_000_000)
    assert publisher.cares == []
    network.start("B")  # where it was
    network.run(us=20_000_000)
    assert publisher.cares == [1]
    reader = network.client("reader", "C")
    reader.ask(SubscribeDurable(2, "log", ""))
    network.run(us=10_000_000)
    assert [row.attributes["x"] for _, _, row in reader.stored] == [1]


@pytest.mark.parametrize("store", STORES)
def test_a_hello_that_names_a_dead_neighbour_gives_nothing_up(store: bool) -> None:
    network, publisher = with_a_dead_neighbour(store=store)
    stranger = Stranger(
        network, "A", hello_as("C", brokers=["B"], address="nowhere"), SyncBegin(), TablesComplete()
    )
    network.leave(stranger)
    network.run(us=1_000_000)
    operator = network.client("o", "A")
    operator.ask(Ask(1, "forget", {"neighbour": "C"}))
    require_delivered(network, publisher)


@pytest.mark.parametrize("store", STORES)
def test_a_loop_in_a_dead_neighbours_name_gives_nothing_up(store: bool) -> None:
    network, publisher = with_a_dead_neighbour(store=store)
    network.start("D", neighbours=("A",))
    network.run(us=2_000_000)
    Stranger(network, "A", hello_as("B", brokers=["D"]))
    require_delivered(network, publisher)


def test_a_twin_does_not_take_a_dead_brokers_place() -> None:
    network, publisher = with_a_dead_neighbour(store=True)
    real = network.stores["B"]
    network.stores["B"] = MemoryStore(secret="the twin's")
    network.move("B", "elsewhere")
    network.start("B")
    network.run(us=10_000_000)
    assert publisher.cares == []
    network.kill("B")
    network.stores["B"] = real
    network.move("B", "B")
    require_delivered(network, publisher)


def test_a_broker_that_lost_its_data_is_known_by_its_address() -> None:
    network, publisher = with_a_dead_neighbour(store=True)
    network.stores["B"] = MemoryStore(secret="another")
    network.start("B")
    network.run(us=10_000_000)
    assert network.cores["A"]._links.links["B"].current
    assert publisher.cares == list(range(1, 21)), "the log is gone, and B itself says so"


def test_a_broker_that_lost_its_data_is_known_by_its_address_after_a_restart_of_the_other() -> None:
    network, _ = with_a_dead_neighbour(store=True)
    network.kill("A")
    network.stores["B"] = MemoryStore(secret="another")
    network.start("A")
    network.start("B")
    network.run(us=15_000_000)
    assert network.cores["A"]._links.links["B"].current


@pytest.mark.parametrize("b_dials", [("A",), ()], ids=["both dial", "one dials"])
def test_neighbours_that_both_came_back_without_their_keys_meet_again(b_dials: tuple[str, ...]) -> None:
    """Neither can prove to the other who it is, but each is found at the address where it was met."""
    network = Network()
    network.start("A", neighbours=("B",), store=True)
    network.start("B", neighbours=b_dials, store=True)
    network.run(us=2_000_000)
    old = deepcopy(network.stores["B"])
    for name in ("A", "B"):
        network.kill(name)
        network.stores[name] = MemoryStore(secret=f"another of {name}")
        network.start(name)
        network.run(us=15_000_000)
    assert network.cores["A"]._links.links["B"].current
    network.kill("B")
    network.stores["B"] = old
    network.notes.clear()
    network.start("B")
    network.run(us=15_000_000)
    assert network.cores["A"]._links.links["B"].current
    assert network.cores["B"]._links.links["A"].current
    assert sum("refused" in note.what for _, note in network.notes) < 10, "nobody knocks without a pause"


@pytest.mark.parametrize("more", [(Goodbye(detach=True),), (SyncBegin(), TablesComplete())])
def test_what_any_client_of_both_brokers_can_know_proves_nothing(more: tuple[Message, ...]) -> None:
    """Brokers tell clients their incarnations, and names of sessions must not follow from those."""
    network, publisher = with_a_dead_neighbour(store=True)
    incarnations = {"A": "A-1", "B": "B-2"}
    assert network.client("spy", "A").answers(Welcome)[0].incarnation == incarnations["A"]
    for number in range(1, 10):
        for broker in incarnations.values():
            hello = hello_as("B")
            hello = msgspec.structs.replace(
                hello, incarnation=incarnations["B"], resumes=f"{broker}/{number}"
            )
            Stranger(network, "A", hello, *more)
    require_delivered(network, publisher)


def test_a_broker_with_its_data_may_come_from_another_address() -> None:
    network, publisher = with_a_dead_neighbour(store=True)
    network.move("B", "elsewhere")
    require_delivered(network, publisher)


@pytest.mark.parametrize("restarted", [False, True], ids=["of this life", "of the next"])
def test_who_sits_at_a_dead_neighbours_address_learns_nothing_that_others_believe(restarted: bool) -> None:
    """A greeting says who sends it, to the one neighbour that should be where it is sent."""
    network = Network()
    network.start("A", store=True)
    network.start("C", store=True)
    network.start("B", neighbours=("A", "C"), store=True)
    network.run(us=2_000_000)
    network.client("reader", "B").ask(SubscribeDurable(1, "log", "x > 0"))
    network.run(us=1_000_000)
    network.kill("C")
    greetings: list[Hello] = []
    network.on_frames = lambda source, _, frames: greetings.extend(
        frame.body for frame in frames if source == "B" and isinstance(frame.body, Hello)
    )
    if restarted:
        network.kill("B")
        network.start("B")
        network.run(us=100_000)
        greetings.clear()
    # Somebody else listens there now, and does not say a word.
    network._moved["listener"] = "C"
    network.change = lambda source, _, frame: None if source == "listener" else frame
    network.start("listener", address="C")
    network.run(us=20_000_000)
    network.kill("listener")
    heard = [each for each in greetings if "C" in each.proofs]
    assert heard, "it was dialled"
    network.kill("B")
    network.run(us=1_000_000)
    publisher = network.client("p", "A")
    for number in range(1, 21):
        publisher.publish({"x": number}, acknowledged=True)
    network.run(us=1_000_000)
    for greeting in heard:
        stolen = msgspec.structs.replace(greeting, address="", resumes="", brokers=[])
        stranger = Stranger(network, "A", stolen, SyncBegin(), TablesComplete())
        assert [each.code for each in stranger.answers(Refused)] == ["identity"]
    network.start("C")
    require_delivered(network, publisher)


def test_who_sits_at_an_address_that_an_operator_has_just_named_learns_nothing_that_others_believe() -> None:
    network = Network()
    network.start("A", store=True)
    network.start("B", neighbours=("A",), store=True)
    network.run(us=2_000_000)
    network.client("reader", "B").ask(SubscribeDurable(1, "log", "x > 0"))
    network.run(us=1_000_000)
    greetings: list[Hello] = []
    network.on_frames = lambda source, _, frames: greetings.extend(
        frame.body for frame in frames if source == "B" and isinstance(frame.body, Hello)
    )
    # Whoever listens there does not say a word.
    network.change = lambda source, _, frame: None if source == "listener" else frame
    network.start("listener")
    network.cores["B"]._dialling.remember("listener")
    network.cores["B"]._links.tell_reach()
    network.run(us=10_000_000)
    network.kill("listener")
    assert greetings, "it was dialled"
    network.kill("B")
    network.run(us=1_000_000)
    publisher = network.client("p", "A")
    for number in range(1, 21):
        publisher.publish({"x": number}, acknowledged=True)
    network.run(us=1_000_000)
    for greeting in greetings:
        stolen = msgspec.structs.replace(greeting, address="", resumes="", brokers=[])
        stranger = Stranger(network, "A", stolen, SyncBegin(), TablesComplete())
        assert [each.code for each in stranger.answers(Refused)] == ["identity"]
    require_delivered(network, publisher)


@pytest.mark.parametrize("strategy", ["S0", "SB"])
def test_what_waits_for_a_neighbour_that_moved_is_sent_where_it_is(strategy: str) -> None:
    """The brokers between have had the publications, and would take them for repetitions."""
    network = Network()
    network.start("A", store=True, strategy=strategy)
    network.start("X", neighbours=("A",), store=True, strategy=strategy)
    network.start("Y", neighbours=("X",), store=True, strategy=strategy)
    network.start("B", neighbours=("A",), store=True, strategy=strategy)
    network.run(us=3_000_000)
    other = network.client("other", "Y")
    other.ask(Subscribe(1, "1", "x > 0"))
    network.client("reader", "B").ask(SubscribeDurable(1, "log", "x > 0"))
    network.run(us=1_000_000)
    network.kill("B")
    network.run(us=1_000_000)
    publisher = network.client("p", "A")
    for number in range(1, 21):
        publisher.publish({"x": number}, acknowledged=True)
    network.run(us=10_000_000)
    assert other.values("x") == list(range(1, 21))
    assert publisher.cares == []
    # B is started again with another neighbour, and forgets the one before.
    network.settings.pop("B")
    network.start("B", neighbours=("Y",), strategy=strategy)
    network.run(us=5_000_000)
    for broker, neighbour in (("B", "A"), ("A", "B")):
        network.client(f"operator-{broker}", broker).ask(Ask(1, "forget", {"neighbour": neighbour}))
    network.run(us=10_000_000)
    reader = network.client("reader", "B")
    reader.ask(SubscribeDurable(2, "log", ""))
    network.run(us=10_000_000)
    assert [row.attributes["x"] for _, _, row in reader.stored] == list(range(1, 21))
    assert publisher.cares == list(range(1, 21))
    assert other.values("x") == list(range(1, 21)), "nobody gets anything twice"


@pytest.mark.parametrize("strategy", ["S0", "S2", "SB"])
def test_what_waits_for_a_neighbour_that_moved_reaches_those_behind_it(strategy: str) -> None:
    """They have moved with it, and what they want waited for it, too."""
    network = Network()
    settings: dict[str, Any] = {"strategy": strategy, "delta": 4 if strategy == "S2" else 0}
    network.start("A", store=True, **settings)
    network.start("X", neighbours=("A",), store=True, **settings)
    network.start("B", neighbours=("A",), store=True, **settings)
    network.start("Z", neighbours=("B",), store=True, **settings)
    network.run(us=3_000_000)
    other = network.client("other", "X")
    other.ask(Subscribe(1, "1", "x > 0"))
    network.client("reader", "Z").ask(SubscribeDurable(1, "log", "x > 0"))
    network.run(us=1_000_000)
    network.kill("B")
    network.run(us=1_000_000)
    publisher = network.client("p", "A")
    for number in range(1, 21):
        publisher.publish({"x": number}, acknowledged=True)
    network.run(us=10_000_000)
    assert publisher.cares == []
    network.settings.pop("B")
    network.start("B", neighbours=("X",), **settings)
    network.run(us=5_000_000)
    for broker, neighbour in (("B", "A"), ("A", "B")):
        network.client(f"operator-{broker}", broker).ask(Ask(1, "forget", {"neighbour": neighbour}))
    network.run(us=30_000_000)
    reader = network.client("reader", "Z")
    reader.ask(SubscribeDurable(2, "log", "", takeover=True))
    network.run(us=10_000_000)
    assert [row.attributes["x"] for _, _, row in reader.stored] == list(range(1, 21))
    assert publisher.cares == list(range(1, 21))
    assert other.values("x") == list(range(1, 21)), "nothing comes twice"


@pytest.mark.parametrize("b_store", STORES)
@pytest.mark.parametrize("alive", [False, True], ids=["dead", "alive"])
def test_a_twin_that_is_dialled_does_not_take_a_brokers_place(alive: bool, b_store: bool) -> None:
    """By mistake somebody else has the id of a neighbour, and is dialled at its own address."""
    network = Network()
    network.start("A", neighbours=("twin",), store=True)
    network.start("B", neighbours=("A",), store=b_store)
    network.run(us=7_000_000)
    reader = network.client("reader", "B")
    reader.ask(Subscribe(1, "1", "x > 0"))
    network.run(us=1_000_000)
    if not alive:
        network.kill("B")
        network.run(us=10_000_000)
    publisher = network.client("p", "A")
    publisher.publish({"x": 1}, acknowledged=True)
    network.run(us=1_000_000)
    network.start("twin", broker_id="B")
    network.run(us=20_000_000)
    assert network.cores["A"]._links.links["B"].address == "B"
    assert (network.cores["A"]._links.links["B"].connection is not None) == alive
    assert publisher.cares == ([1] if alive else [])
    network.kill("twin")
    if not alive:
        network.start("B")
    network.run(us=10_000_000)
    network.client("operator", "A").ask(Ask(1, "forget", {"neighbour": "twin"}))
    network.run(us=1_000_000)
    assert network.cores["A"]._links.links["B"].current
    assert reader.values("x") == ([1] if alive else []), "a plain reader goes with its broker"
    assert publisher.cares == [1]


@pytest.mark.parametrize("b_store", STORES)
def test_a_neighbour_that_is_dialled_may_announce_another_address(b_store: bool) -> None:
    """Such as one that is known to others by another name of its host."""
    network = Network()
    network.start("A", neighbours=("b.example",), store=True)
    network.start("B", address="b", store=b_store)
    network._moved["B"] = "b.example"
    network.run(us=7_000_000)
    network.kill("B")
    publisher = network.client("p", "A")
    publisher.publish({"x": 1}, acknowledged=True)
    network.run(us=1_000_000)
    network.start("B")
    network.run(us=10_000_000)
    assert network.cores["A"]._links.links["B"].current
    assert publisher.cares == [1]


def test_a_neighbour_that_is_dialled_elsewhere_proves_who_it_is() -> None:
    network = Network()
    network.start("A", neighbours=("B",), store=True)
    network.start("B", store=True)
    network.run(us=7_000_000)
    network.kill("B")
    network.kill("A")
    network.move("B", "elsewhere")
    network.settings["B"] = BrokerSettings(broker_id="B", address="elsewhere")
    network.settings["A"] = BrokerSettings(broker_id="A", address="A", neighbours=("elsewhere",))
    network.start("A")
    network.run(us=10_000_000)
    publisher = network.client("p", "A")
    publisher.publish({"x": 1}, acknowledged=True)
    network.run(us=1_000_000)
    network.start("B")
    network.run(us=10_000_000)
    assert network.cores["A"]._links.links["B"].current
    assert publisher.cares == [1]


def test_who_refuses_a_link_speaks_for_itself_alone() -> None:
    """What waits for a neighbour is not given up because somebody else says that it has moved."""
    network, publisher = with_a_dead_neighbour(store=True)
    # Somebody says that B is behind it, and is dialled where it says that it is.
    liar = Stranger(network, "A", hello_as("C", brokers=["B"], address="C"), SyncBegin(), TablesComplete())
    core = network.cores["A"]
    core._links._dialling.remember("C", "C")
    core.handle(Opened(901, "C", "C"), network.now_us)
    core.handle(Received(901, [Frame(0, Refused("loop", "there is another way", "B"))]), network.now_us)
    assert "B" in core._links.links
    network.leave(liar)
    core._dialling.forget("C")
    network.run(us=1_000_000)
    network.client("o", "A").ask(Ask(1, "forget", {"neighbour": "C"}))
    require_delivered(network, publisher)
