"""Eq. 3 to 10 of the self-organising paper against what is printed there, and Figure 2."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.adaptation.topology.estimates import cycle_costs, indirect_costs, mean_interest

COST = st.floats(0, 10)
INTEREST = st.one_of(st.just(0.0), st.integers(1, 500).map(float))


def literal_indirect(i: int, j: int, line: list[int], interest: dict, p: dict, c: dict, phi: float) -> float:
    """Eq. 7 word by word, by recursion: `line` is the path from B_i to B_j."""
    if i == j:
        return 0.0
    if len(line) == 2:
        return c[frozenset(line)]
    k = line[-2]
    three = min(phi, interest[i, j], interest[i, k])
    fraction = 1.0 if interest[i, j] == 0 else (interest[i, j] - three) / interest[i, j]
    return fraction * (literal_indirect(i, k, line[:-1], interest, p, c, phi) + p[k]) + c[frozenset((k, j))]


@st.composite
def cycles(draw: st.DrawFn) -> tuple[int, dict, dict, dict]:
    count = draw(st.integers(3, 7))
    interest = {}
    for i in range(count):
        for j in range(i):
            interest[i, j] = interest[j, i] = draw(INTEREST)
    p = {i: draw(COST) for i in range(count)}
    c = {frozenset((i, (i + 1) % count)): draw(COST) for i in range(count)}
    return count, interest, p, c


def line_without(removed: int, count: int) -> list[int]:
    return [(removed + 1 + step) % count for step in range(count)]


def part(line: list[int], i: int, j: int) -> list[int]:
    a, b = line.index(i), line.index(j)
    return line[a : b + 1] if a < b else line[b : a + 1][::-1]


@given(cycles(), st.floats(0, 300))
def test_equation_7_is_what_the_recursion_says(cycle: tuple, phi: float) -> None:
    count, interest, p, c = cycle
    line = list(range(count))
    found = indirect_costs(
        [interest[0, j] for j in line[1:]],
        [p[j] for j in line[1:]],
        [c[frozenset(pair)] for pair in pairwise(line)],
        phi,
    )
    for j in line[1:]:
        assert found[j - 1] == pytest.approx(literal_indirect(0, j, line[: j + 1], interest, p, c, phi))


@given(cycles(), st.floats(0, 300))
def test_equations_8_to_10_are_what_is_printed(cycle: tuple, phi: float) -> None:
    count, interest, p, c = cycle
    links = [c[frozenset((q, (q + 1) % count))] for q in range(count)]
    total = [0.0] * count
    for i in range(count):
        shared = [interest.get((i, j), 0.0) for j in range(count)]
        mine = cycle_costs(i, shared, [p[j] for j in range(count)], links, phi)
        for removed in range(count):
            line = line_without(removed, count)
            literal = sum(
                interest[i, j] * literal_indirect(i, j, part(line, i, j), interest, p, c, phi)
                for j in range(count)
                if j != i
            )
            assert mine[removed] == pytest.approx(literal)
            total[removed] += mine[removed]
    assert min(total) == pytest.approx(min(total[e] for e in range(count)))


@given(st.integers(1, 500), st.integers(0, 500), st.integers(0, 500), COST, COST, COST, COST, COST, COST)
def test_equation_5_is_the_comparison_of_equations_3_and_4(
    i_ij: int,
    i_ik: int,
    i_ikj: int,
    p_i: float,
    p_k: float,
    p_j: float,
    c_ik: float,
    c_kj: float,
    c_ij: float,
) -> None:
    i_ikj = min(i_ikj, i_ij, i_ik)
    # Eq. 3 with the bracket of the second term around all five costs (errata).
    now = i_ik * (p_i + c_ik + p_k) + i_ij * (p_i + c_ik + p_k + c_kj + p_j) - i_ikj * (p_i + c_ik + p_k)
    then = i_ik * (p_i + c_ik + p_k) + i_ij * (p_i + c_ij + p_j) - i_ikj * p_i
    # phi does not bind here: the three-way interest is given.
    indirect = (i_ij - i_ikj) / i_ij * (c_ik + p_k) + c_kj
    if abs(now - then) > 1e-6:
        assert (c_ij < indirect) == (then < now)
    if i_ikj == min(i_ij, i_ik):
        assert indirect_costs([i_ik, i_ij], [p_k, p_j], [c_ik, c_kj], 1e9)[-1] == pytest.approx(indirect)


def test_phi_is_the_mean_over_the_others() -> None:
    # Eq. 6 with the broker itself in its neighbourhood: (3 + 9 + 0 + I_i - I_i) / (4 - 1).
    assert mean_interest([3, 9, 0]) == 4
    assert mean_interest([]) == 0
