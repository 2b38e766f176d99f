"""Do two histories of a log find the point where they part?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from braid.protocol.epochs import EPOCHS_MAX, EpochHistory


def test_an_epoch_ends_where_the_next_begins():
    history = EpochHistory([("A-1", 0), ("A-2", 200)])
    assert history.end_of("A-1", 350) == 200
    assert history.end_of("A-2", 350) == 350
    assert history.end_of("A-3", 350) is None
    assert [history.at(offset) for offset in (0, 199, 200, 500)] == ["A-1", "A-1", "A-2", "A-2"]
    assert history.has("A-1", 199, 350)
    assert not history.has("A-1", 200, 350)
    assert history.split([198, 199, 200, 207]) == [("A-1", 0, 2), ("A-2", 2, 4)]


def test_a_history_is_bounded():
    history = EpochHistory()
    for number in range(EPOCHS_MAX + 10):
        history.begin(f"A-{number}", number)
    assert len(history.entries) == EPOCHS_MAX
    assert history.at(3) == ""


class Log:
    """A log as it is: each row unlike every other, with the epoch it was appended in."""

    def __init__(self, rows: list[tuple[str, int]]) -> None:
        self.rows = rows
        self.history = EpochHistory()
        for offset, (epoch, _) in enumerate(rows):
            self.history.begin(epoch, offset)


# How many rows each start of a broker appends, before and after a backup of the log is restored.
lives = st.lists(st.integers(0, 4), max_size=4)


@given(lives, lives, lives)
def test_two_logs_of_one_past_agree_exactly_on_what_they_share(
    past: list[int], left: list[int], right: list[int]
):
    shared = [(f"s{life}", number) for life, count in enumerate(past) for number in range(count)]

    def go_on(side: str, counts: list[int]) -> Log:
        later = [(f"{side}{life}", number) for life, count in enumerate(counts) for number in range(count)]
        return Log(shared + later)

    one, other = go_on("l", left), go_on("r", right)
    end = one.history.common_end(other.history, len(one.rows), len(other.rows))
    assert end == (len(shared) if shared else None)


@given(lives, st.integers(0, 16))
def test_a_shorter_copy_of_a_log_agrees_up_to_its_end(past: list[int], length: int):
    rows = [(f"s{life}", number) for life, count in enumerate(past) for number in range(count)]
    whole, copy = Log(rows), Log(rows[:length])
    end = copy.history.common_end(whole.history, len(copy.rows), len(whole.rows))
    assert end == (len(copy.rows) if copy.rows else None)
