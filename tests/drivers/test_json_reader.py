"""JSON of strangers: strict where a document is broken, tolerant about everything else."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterllm_mqtt.drivers.json_reader import (
    Malformed,
    Number,
    fields,
    is_int64,
    number,
    parse,
    positive,
    rows,
    text,
    trim,
)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"OK",
        b"{",
        b"{}x",
        b"{}\x0c",
        b"\xef\xbb\xbf{}",
        b"{'a':1}",
        b"[1,]",
        b"[007]",
        b"[NaN]",
        b"[Infinity]",
        b"// hi\n{}",
        b'"a\nb"',
        b'"\\q"',
        "{}".encode("utf-16"),
        b"[" * 100_000,
    ],
)
def test_what_is_no_json_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        parse(body)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(body: bytes) -> None:
    with contextlib.suppress(Malformed):
        parse(body)


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(),
        lambda c: st.lists(c) | st.dictionaries(st.text(), c),
        max_leaves=10,
    )
)
def test_json_comes_back_as_it_was(document: object) -> None:
    assert parse(json.dumps(document).encode()) == document


def test_numbers_are_kept_as_they_were_spelled() -> None:
    digits = "9" * 10_000
    assert parse(f"[1.0, 1e400, -0, {digits}]".encode()) == ["1.0", "1e400", "-0", digits]
    assert all(isinstance(item, Number) for item in parse(b"[1, 2.5]"))


def test_invalid_utf8_and_lone_surrogates_become_replacement_characters() -> None:
    found = fields(parse(b'{"a":"x\xff\xfe","b":"\\ud800y","c":"\\ud83d\\ude80"}'))
    assert text(found, "a") == "x\ufffd\ufffd"
    assert text(found, "b") == "\ufffdy"
    assert text(found, "c") == "\U0001f680"


@pytest.mark.parametrize(
    "body", ['{"a":"1","A":"2"}', '{"A":"1","a":"2"}', '{"a":"0","A":"1","a":"2"}', '{"A":"2"}']
)
def test_field_names_have_no_case_and_the_last_one_wins(body: str) -> None:
    assert text(fields(parse(body.encode())), "a") == "2"


def test_null_is_an_empty_object_and_an_absent_field() -> None:
    assert fields(parse(b"null")) == {}
    found = fields(parse(b'{"t":null,"n":null,"r":null}'))
    assert (text(found, "t"), number(found, "n"), rows(found, "r")) == ("", "", [])


@pytest.mark.parametrize("value", ["[]", "1", '"x"', "true"])
def test_another_type_is_no_object(value: str) -> None:
    with pytest.raises(Malformed):
        fields(parse(value.encode()))


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (text, "1"),
        (text, "true"),
        (text, "{}"),
        (number, '""'),
        (number, '" 1"'),
        (number, '"+1"'),
        (number, '"007"'),
        (number, '"24 GiB"'),
        (number, "true"),
        (rows, "{}"),
        (rows, '"x"'),
    ],
)
def test_a_known_field_of_the_wrong_type_is_malformed(read, value: str) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    with pytest.raises(Malformed):
        read(fields(parse(f'{{"f":{value}}}'.encode())), "f")


@pytest.mark.parametrize("value", ["1", '"1"', "1.5", "-3", '"1e3"'])
def test_a_number_may_be_quoted(value: str) -> None:
    assert number(fields(parse(f'{{"f":{value}}}'.encode())), "f") == value.strip('"')


@pytest.mark.parametrize(
    ("spelled", "value"),
    [
        ("1", 1),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", 0),
        ("1" * 400, 0),
        ("-1", 0),
        ("1.0", 0),
        ("1e3", 0),
        ("", 0),
    ],
)
def test_only_whole_numbers_of_64_bits_count(spelled: str, value: int) -> None:
    assert positive(spelled) == value


def test_the_bounds_of_64_bits() -> None:
    assert is_int64("-9223372036854775808")
    assert not is_int64("-9223372036854775809")


def test_trimming_knows_unicodes_white_space_and_no_other() -> None:
    assert trim("\u2028 a\u00a0b \u3000") == "a\u00a0b"
    assert trim("\x1ca\u200b\ufeff") == "\x1ca\u200b\ufeff"
