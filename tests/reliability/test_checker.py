"""Does the checker see what it is there to see? Each mistake is planted, and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.reliability.checker import Checker
from tests.reliability.journal import Journal, JournalReader, journal_path
from tests.reliability.plan import Plan, Selection, Subscriber, Watcher, Writer, id_of, make_plan, price_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reliability.checker import Verdict

PLAN = Plan(("B1",), {}, (Writer("w0", "B1", False),), (Subscriber("s0", "B1", Selection(0)),))


def row(offset: int, sequence: int, publisher: str = "w0.1") -> str:
    return f"row {offset} {publisher} {sequence} {price_of(publisher, sequence)}"


def judged(
    directory: Path, subscriber: list[str], *, published: int = 3, settled: int = 3, plan: Plan = PLAN
) -> Verdict:
    writer = Journal(directory, "w0")
    writer.write("life 1", "ready", f"published w0.1 {published}", f"settled w0.1 {settled}")
    writer.close()
    reader = Journal(directory, "s0")
    reader.write("life 1", "ready", *subscriber)
    reader.close()
    return Checker(plan, directory, soft_links=plan is not PLAN).conclude()


def test_what_is_as_it_should_be_is_right(tmp_path: Path) -> None:
    verdict = judged(tmp_path, [row(0, 1), row(1, 2), row(2, 3), "confirmed 2"])
    assert verdict.right
    assert (verdict.published, verdict.settled, verdict.delivered) == (3, 3, 3)


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        pytest.param("lost", [row(0, 1), row(1, 3)], id="a row is missing"),
        pytest.param("doubled", [row(0, 1), row(1, 2), row(2, 2), row(3, 3)], id="in the log twice"),
        pytest.param("doubled", [row(0, 1), row(0, 1), row(1, 2), row(2, 3)], id="one offset twice"),
        pytest.param("misordered", [row(0, 1), row(1, 3), row(2, 2)], id="out of order"),
        pytest.param("wrong", [row(0, 1), row(1, 2), row(3, 3)], id="an offset is left out"),
        pytest.param("wrong", [row(0, 1), row(1, 2), row(2, 3), row(3, 4)], id="never published"),
        pytest.param("wrong", ["row 0 w0.1 1 100", row(1, 2), row(2, 3)], id="another content"),
        pytest.param("wrong", [row(0, 1), row(1, 2), row(2, 3), "trouble that was"], id="a client complains"),
        pytest.param(
            "doubled",
            [row(0, 1), row(1, 2), "confirmed 1", "life 2", row(1, 2), row(2, 3)],
            id="acknowledged and given to the next process all the same",
        ),
        pytest.param(
            "wrong",
            [row(0, 1), "life 2", row(2, 3), "life 3", row(1, 2)],
            id="a gap between processes",
        ),
    ],
)
def test_a_mistake_is_seen(tmp_path: Path, kind: str, lines: list[str]) -> None:
    verdict = judged(tmp_path, lines)
    assert getattr(verdict, kind) >= 1
    assert verdict.examples[kind]
    assert not verdict.right


def test_what_was_published_before_the_answer_is_not_owed_and_may_come_out_of_order(tmp_path: Path) -> None:
    writer = Journal(tmp_path, "w0")
    writer.write("published w0.1 3 100", "published w0.1 6 300", "settled w0.1 6 350")
    writer.close()
    reader = Journal(tmp_path, "s0")
    reader.write("life 1", "ready 200", row(0, 4), row(1, 2), row(2, 5), row(3, 6))
    reader.close()
    verdict = Checker(PLAN, tmp_path).conclude()
    assert verdict.right, verdict.examples
    assert verdict.pause_s == pytest.approx(50e-9)


@pytest.mark.parametrize(
    ("kind", "rows"), [("lost", [4, 6]), ("misordered", [4, 6, 5])], ids=["lost", "out of order"]
)
def test_from_the_answer_on_everything_is_owed(tmp_path: Path, kind: str, rows: list[int]) -> None:
    writer = Journal(tmp_path, "w0")
    writer.write("published w0.1 3 100", "published w0.1 6 200", "settled w0.1 6 350")
    writer.close()
    reader = Journal(tmp_path, "s0")
    reader.write("life 1", "ready 200", *(row(offset, number) for offset, number in enumerate(rows)))
    reader.close()
    assert getattr(Checker(PLAN, tmp_path).conclude(), kind) == 1


def test_whoever_is_never_answered_is_named(tmp_path: Path) -> None:
    Journal(tmp_path, "s0").write("life 1")
    verdict = Checker(PLAN, tmp_path).conclude()
    assert verdict.examples == {"wrong": ["s0 was never answered"]}


def reset_run(directory: Path, *rows: str) -> Verdict:
    """The broker of a reader loses its log at 400, and answers it again at 500."""
    writer = Journal(directory, "w0")
    writer.write("published w0.1 3 100", "published w0.1 6 600", "settled w0.1 6 700")
    writer.close()
    checker = Checker(PLAN, directory)
    checker.broke("B1", 400)
    reader = Journal(directory, "s0")
    reader.write("life 1", "ready 50", row(0, 1), row(1, 2), "confirmed 1 500", *rows)
    reader.close()
    return checker.conclude()


def test_a_log_that_was_lost_owes_what_comes_after_its_new_answer(tmp_path: Path) -> None:
    assert reset_run(tmp_path, "reset", row(0, 4), row(1, 5), row(2, 6)).right


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        pytest.param("lost", ["reset", row(0, 4), row(1, 6)], id="a new row is passed over"),
        pytest.param("doubled", [row(0, 4), row(1, 5), row(2, 6)], id="offsets are used again in silence"),
    ],
)
def test_a_log_that_was_lost_passes_nothing_over_in_silence(
    tmp_path: Path, kind: str, rows: list[str]
) -> None:
    verdict = reset_run(tmp_path, *rows)
    assert getattr(verdict, kind)


@pytest.mark.parametrize(
    ("numbers", "misordered"),
    [([1, 3, 2, 4, 5, 6], 0), ([1, 2, 3, 4, 6, 5], 1)],
    ids=["published before the new answer", "published after it"],
)
def test_a_log_that_was_lost_owes_order_from_its_new_answer_on(
    tmp_path: Path, numbers: list[int], misordered: int
) -> None:
    """Rows are written down before the answer is: only then is it known what was owed in order."""
    writer = Journal(tmp_path, "w0")
    writer.write("published w0.1 3 100", "published w0.1 6 600", "settled w0.1 6 700")
    writer.close()
    checker = Checker(PLAN, tmp_path)
    checker.broke("B1", 400)
    reader = Journal(tmp_path, "s0")
    rows = [row(offset, number) for offset, number in enumerate(numbers)]
    reader.write("life 1", "ready 50", "reset", *rows, "confirmed 5 500")
    reader.close()
    assert checker.conclude().misordered == misordered


def test_what_came_out_of_order_before_a_log_was_lost_stays_a_mistake(tmp_path: Path) -> None:
    writer = Journal(tmp_path, "w0")
    writer.write("published w0.1 3 100", "settled w0.1 3 150")
    writer.close()
    checker = Checker(PLAN, tmp_path)
    reader = Journal(tmp_path, "s0")
    reader.write("life 1", "ready 50", row(0, 1), row(1, 3), row(2, 2))
    checker.broke("B1", 400)
    reader.write("reset", "confirmed -1 500")
    reader.close()
    assert checker.conclude().misordered == 1


@pytest.mark.parametrize("ordered", [False, True])
def test_with_soft_links_order_is_for_those_who_ask(tmp_path: Path, ordered: bool) -> None:
    plan = Plan(PLAN.brokers, {}, (Writer("w0", "B1", False, ordered),), PLAN.subscribers)
    verdict = judged(tmp_path, [row(0, 1), row(1, 3), row(2, 2)], plan=plan)
    assert verdict.misordered == int(ordered)


def test_what_was_not_acknowledged_may_come_again_in_the_next_process(tmp_path: Path) -> None:
    verdict = judged(tmp_path, [row(0, 1), row(1, 2), "confirmed 0", "life 2", row(1, 2), row(2, 3)])
    assert verdict.right
    assert verdict.redelivered == 1


def test_what_has_no_receipt_may_be_missing_or_there(tmp_path: Path) -> None:
    assert judged(tmp_path, [row(0, 1), row(1, 2), row(2, 3)], published=5, settled=2).right


def test_a_line_that_was_cut_short_is_not_believed(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "s0")
    journal.write("row 0 w0.1 1 50")
    with journal_path(tmp_path, "s0").open("ab") as file:
        file.write(b"row 1 w0.1 2 5")
    reader = JournalReader(tmp_path, "s0")
    assert list(reader.lines()) == [["row", "0", "w0.1", "1", "50"]]
    again = Journal(tmp_path, "s0")
    again.write("ready")
    assert list(reader.lines()) == [["ready"]]
    again.close()
    journal.close()


@pytest.mark.parametrize("seed", range(20))
def test_every_plan_is_a_tree_in_which_each_broker_dials_once_at_most(seed: int) -> None:
    plan = make_plan(seed, 7, 20)
    assert len(plan.dials) == 6
    reached = {plan.brokers[0]}
    for _ in plan.brokers:
        for ends in plan.dials.items():
            if reached & set(ends):
                reached |= set(ends)
    assert reached == set(plan.brokers)
    assert len(plan.writers) == len(plan.subscribers) == 10


WATCHED = Plan(("B1",), {}, (Writer("w0", "B1", False),), (), (Watcher("v0", "B1", (0, 1)),), 2)


def seen(sequence: int, *, id: int | None = None) -> str:
    return f"seen {id_of('w0.1', sequence, 2) if id is None else id} w0.1 {sequence} 700"


def same_id(sequences: int = 20) -> list[int]:
    """Numbers of publications that are about the same."""
    return [sequence for sequence in range(1, sequences + 1) if id_of("w0.1", sequence, 2) == 0]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        pytest.param("", lambda lines: lines, id="as it should be"),
        pytest.param("lost", lambda lines: lines[1:], id="one is missing"),
        pytest.param("doubled", lambda lines: [*lines, lines[0]], id="one comes twice"),
        pytest.param("wrong", lambda lines: [*lines, seen(21)], id="never published"),
        pytest.param(
            "wrong", lambda lines: [*lines[1:], seen(1, id=1 - id_of("w0.1", 1, 2))], id="of another"
        ),
        pytest.param("wrong", lambda lines: [*lines, "trouble that was"], id="it complains"),
        pytest.param(
            "misordered",
            lambda lines: [seen(same_id()[1]), *(line for line in lines if line != seen(same_id()[1]))],
            id="out of order",
        ),
    ],
)
def test_a_mistake_at_a_watcher_is_seen(
    tmp_path: Path, kind: str, change: Callable[[list[str]], list[str]]
) -> None:
    writer = Journal(tmp_path, "w0")
    writer.write("life 1", "ready 1", "published w0.1 20 600", "settled w0.1 20 650")
    writer.close()
    watcher = Journal(tmp_path, "v0")
    watcher.write("life 1", "ready 500", *change([seen(sequence) for sequence in range(1, 21)]))
    watcher.close()
    verdict = Checker(WATCHED, tmp_path).conclude()
    assert verdict.right == (not kind)
    if kind:
        assert getattr(verdict, kind) >= 1
