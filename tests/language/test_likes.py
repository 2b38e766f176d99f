"""Does LIKE find what the pattern describes?"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.language import likes
from braid.language.likes import (
    LikePatternError,
    canonical_like,
    escape_like,
    like_matcher,
    like_prefix,
    parse_like,
)

pieces = st.sampled_from(["a", "b", "ab", "%", "_", "!%", "!_", "!!", "\\", ".", "\n", "😀"])
patterns = st.lists(pieces, max_size=7).map("".join)
texts = st.text(alphabet="ab%_!\\.\n😀", max_size=9)


def as_expression(pattern: str) -> re.Pattern[str]:
    """The textbook translation, which may take for ever on long texts and is right on short ones."""
    parts = re.findall(r"!(.)|(%)|(_)|(.)", pattern, re.DOTALL)
    written = (".*" if run else "." if one else re.escape(a or b) for a, run, one, b in parts)
    return re.compile("".join(written), re.DOTALL)


@given(patterns, texts)
def test_matching_agrees_with_a_regular_expression(pattern: str, text: str) -> None:
    expected = as_expression(pattern).fullmatch(text) is not None
    assert like_matcher(pattern, "!").matches(text) is expected
    assert like_matcher(*canonical_like(pattern, "!")).matches(text) is expected


@given(patterns)
def test_the_canonical_pattern_is_a_fixed_point(pattern: str) -> None:
    canonical = canonical_like(pattern, "!")
    assert canonical_like(*canonical) == canonical


@given(texts, texts)
def test_an_escaped_text_matches_only_itself(text: str, other: str) -> None:
    assert like_matcher(escape_like(text), "!").matches(text)
    assert like_matcher(escape_like(text), "!").matches(other) is (text == other)


@pytest.mark.parametrize(
    ("pattern", "prefix", "form"),
    [
        ("", "", "exact"), ("abc", "abc", "exact"), ("a!%", "a%", "exact"), ("abc%", "abc", "prefix"),
        ("%", "", "prefix"), ("a%%", "a", "prefix"), ("a%b", "a", "general"), ("_", "", "general"),
        ("ab_%", "ab", "general"),
    ],
)  # fmt: skip
def test_the_prefix_of_a_pattern(pattern: str, prefix: str, form: str) -> None:
    assert like_prefix(pattern, "!") == (prefix, form)


@pytest.mark.parametrize("pattern", ["a!", "!a", "%!"])
def test_a_lonely_escape_is_refused(pattern: str) -> None:
    with pytest.raises(LikePatternError, match="followed by"):
        parse_like(pattern, "!")


def test_pieces_that_nearly_fit_everywhere_are_found_in_one_go() -> None:
    pattern = "%" + "a_" * 1_000 + "c%"
    text = "ab" * 50_000
    assert not like_matcher(pattern, "!").matches(text)
    assert like_matcher(pattern, "!").matches(text + "c")
    assert like_matcher("%a_c%d", "!").matches("ab" * 40 + "abcd")


@given(patterns, st.text(alphabet="ab", max_size=60))
def test_the_steady_way_finds_the_same(pattern: str, text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(likes, "TRIES_MAX", 0)
        expected = as_expression(pattern).fullmatch(text) is not None
        assert like_matcher(pattern, "!").matches(text) is expected
