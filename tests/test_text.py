"""Strangers' text must not reach a terminal as it is."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterllm_mqtt.text import clean


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("b4567", "b4567"),
        ("red\x1b[31m alert\x07", "red [31m alert"),
        ("two\nlines\r\n\tand a tab", "two lines and a tab"),
        ("abc\u202edef", "abc def"),
        ("größer 模型 🦙", "größer 模型 🦙"),
        ("\ud800", ""),
        ("", ""),
    ],
)
def test_control_and_formatting_characters_go(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


def test_a_long_text_is_cut_and_says_so() -> None:
    assert clean("x" * 300, 10) == "x" * 9 + "…"
    assert clean(" " * 10_000 + "x", 10) == "…"


@given(st.text(max_size=400), st.integers(1, 50))
def test_whatever_comes_in_one_short_line_comes_out(text: str, limit: int) -> None:
    line = clean(text, limit)
    assert len(line) <= limit
    assert all(unicodedata.category(c)[0] != "C" for c in line)
