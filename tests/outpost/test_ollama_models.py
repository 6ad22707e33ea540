"""Ollama's answers of every release, and what no Ollama would send."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterllm_mqtt.errors import RecordError
from clusterllm_mqtt.outpost.ollama_models import (
    MAX_MODELS,
    MAX_TEXT,
    MAX_TEXTS,
    Details,
    Tag,
    read_show,
    read_tags,
    registry_model,
)
from clusterllm_mqtt.outpost.payload import RegistryModel, RegistryPushPayload

SAMPLES = sorted((Path(__file__).parents[1] / "data" / "ollama").glob("*.json"))


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def told(model: RegistryModel) -> dict[str, Any]:
    """What is known of a model, as the samples write it."""
    return {name: value for name, value in json.loads(encoded(asdict(model))).items() if value}


def tag(**fields: object) -> Tag:
    """What becomes of one row."""
    (read,) = read_tags(encoded({"models": [{"name": "m", **fields}]}))
    return read


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_each_release_is_read(path: Path) -> None:
    sample = json.loads(path.read_text(encoding="utf-8"))
    tags = {t.name: t for t in read_tags(encoded(sample["tags"])) if not t.is_remote}
    by_digest = {
        tags[name].digest: read_show(encoded(show)) for name, show in sample["shows"].items()
    }
    models = [registry_model(t, by_digest.get(t.digest)) for t in tags.values()]
    assert sorted(map(told, models), key=lambda m: m["name"]) == sample["expect"]


def test_the_samples_are_all_there_and_say_what_they_follow() -> None:
    assert len(SAMPLES) == 7
    assert all("follows" in json.loads(p.read_text(encoding="utf-8")) for p in SAMPLES)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><body>Ollama is running</body></html>",
        b"Ollama is running",
        b'{"models":[',
        b'{"models":[{"name":"m","size":NaN}]}',
        b'{"models":[{"name":"m","size":-Infinity}]}',
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"models":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b"null",
        b"[]",
        b'"models"',
        b"7",
    ],
)
def test_what_is_no_object_of_json_is_no_record(body: bytes) -> None:
    with pytest.raises(RecordError):
        read_tags(body)
    with pytest.raises(RecordError):
        read_show(body)


@pytest.mark.parametrize(
    "body", ["{}", '{"error":"x"}', '{"models":{}}', '{"models":"m"}', '{"models":0}']
)
def test_an_answer_without_a_list_is_none(body: str) -> None:
    with pytest.raises(RecordError):
        read_tags(body.encode())


@pytest.mark.parametrize("body", ['{"models":null}', '{"models":[]}'])
def test_no_models_are_no_models(body: str) -> None:
    assert read_tags(body.encode()) == ()


@pytest.mark.parametrize(
    "row",
    [
        None,
        7,
        True,
        "m",
        [],
        {},
        {"name": None},
        {"name": 7},
        {"name": ["m"]},
        {"name": ""},
        {"name": " \u2028\t"},
        {"name": "n" * (MAX_TEXT + 1)},
        {"digest": "d"},
    ],
)
def test_a_row_without_a_usable_name_is_left_out_alone(row: object) -> None:
    assert read_tags(encoded({"models": [row, {"name": "m"}]})) == (Tag("m"),)


def test_a_name_may_be_as_long_as_it_may_be() -> None:
    name = "n" * MAX_TEXT
    assert read_tags(encoded({"models": [{"name": name}]})) == (Tag(name),)


def test_model_is_read_where_there_is_no_name() -> None:
    assert read_tags(b'{"models":[{"model":"m"},{"name":7,"model":"n"}]}') == (Tag("m"), Tag("n"))


@pytest.mark.parametrize("bad", [None, True, 7, 1.5, [], ["x"], {}, {"x": 1}, "x" * 600])
def test_a_field_of_the_wrong_type_is_left_out_alone(bad: object) -> None:
    fields = dict.fromkeys(("digest", "modified_at", "details"), bad)
    assert tag(**fields, size=5) == Tag("m", size=5)
    details = dict.fromkeys(("family", "parameter_size", "quantization_level"), bad)
    assert tag(details=details, digest="d") == Tag("m", "d")


@pytest.mark.parametrize("bad", [None, True, "7", 1.5, 1e400, -1, -(10**30), [], {}])
def test_a_count_that_is_none_is_unknown(bad: object) -> None:
    body = encoded({"models": [{"name": "m", "size": bad}]}).replace(b"Infinity", b"1e400")
    assert read_tags(body) == (Tag("m"),)
    assert tag(details={"context_length": None if bad == 1e400 else bad}) == Tag("m")


@pytest.mark.parametrize("digits", ["9223372036854775808", "9" * 19, "9" * 20, "9" * 100_000])
def test_a_huge_integer_saturates(digits: str) -> None:
    (read,) = read_tags(f'{{"models":[{{"name":"m","size":{digits}}}]}}'.encode())
    assert read.size == 2**63 - 1
    (read,) = read_tags(f'{{"models":[{{"name":"m","size":-{digits}}}]}}'.encode())
    assert read.size == 0


def test_the_largest_integer_is_itself() -> None:
    assert tag(size=2**63 - 1).size == 2**63 - 1


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (None, ()),
        ("tools", ()),
        ({"tools": 1}, ()),
        (["tools", 7, None, "", ["x"], "vision", "tools", "x" * 600], ("tools", "vision")),
        ([f"c{n}" for n in range(1000)], tuple(f"c{n}" for n in range(MAX_TEXTS))),
    ],
)
def test_capabilities_are_texts_each_once_and_bounded(value: object, read: tuple[str, ...]) -> None:
    assert tag(capabilities=value).details.capabilities == read
    assert read_show(encoded({"capabilities": value})).capabilities == read


def test_lone_surrogates_and_invalid_utf8_become_replacement_characters() -> None:
    body = b'{"models":[{"name":"a\\ud800"},{"name":"b\xff"},{"name":"c\\ud83d\\ude80"}]}'
    assert [t.name for t in read_tags(body)] == ["a\ufffd", "b\ufffd", "c\U0001f680"]


def test_the_first_row_of_a_name_counts() -> None:
    rows = [{"name": "m", "size": 1}, {"name": "m", "size": 2}, {"name": "m\ud800"}]
    tags = read_tags(encoded({"models": [*rows, {"name": "m\udfff"}]}))
    assert [(t.name, t.size) for t in tags] == [("m", 1), ("m\ufffd", 0)]


def test_no_more_than_the_first_2000_models_count() -> None:
    rows = [{"name": f"m{n // 2}"} for n in range(10_000)]
    tags = read_tags(encoded({"models": rows}))
    assert [t.name for t in tags] == [f"m{n}" for n in range(MAX_MODELS)]


@pytest.mark.parametrize("field", ["remote_host", "remote_model"])
def test_what_another_machine_serves_is_remote(field: str) -> None:
    assert tag(**{field: "https://ollama.com:443"}).is_remote
    assert not tag(**{field: ""}).is_remote
    assert not tag(**{field: None}).is_remote


@pytest.mark.parametrize(
    ("name", "is_showable"),
    [
        ("qwen3:30b", True),
        ("cloud:latest", True),
        ("my-cloud:latest", True),
        ("my-cloud", True),
        ("qwen3:mycloud", True),
        ("qwen3:cloud", False),
        ("qwen3:480b-cloud", False),
        ("qwen3:480b-CLOUD ", False),
    ],
)
def test_a_name_that_ollama_asks_its_cloud_about_is_not_shown(
    name: str, *, is_showable: bool
) -> None:
    assert Tag(name, "d").is_showable is is_showable
    assert not Tag(name).is_showable
    assert not Tag(name, "d", is_remote=True).is_showable


@pytest.mark.parametrize(
    ("show", "details"),
    [
        ({}, Details()),
        ({"details": None, "model_info": None, "capabilities": None}, Details()),
        ({"details": [], "model_info": "x", "capabilities": 7}, Details()),
        ({"model_info": {"llama.context_length": 7}}, Details()),
        ({"model_info": {"general.architecture": 7, "7.context_length": 7}}, Details()),
        (
            {"model_info": {"general.architecture": "a", "a.context_length": "7"}},
            Details(family="a"),
        ),
        (
            {"model_info": {"general.architecture": "a", "a.context_length": 2**70}},
            Details(family="a", context_length=2**63 - 1),
        ),
        ({"details": {"families": ["clip", "llama"]}}, Details(family="clip")),
        ({"details": {"family": "", "quantization_level": "unknown"}}, Details()),
    ],
)
def test_a_show_tells_what_it_tells(show: object, details: Details) -> None:
    assert read_show(encoded(show)) == details


def test_a_show_fills_the_gaps_of_a_row() -> None:
    shown = Details("f", "7B", "Q4", ("tools",), 4096)
    assert registry_model(Tag("m", "d", 5, "t"), shown) == RegistryModel(
        "m", "d", 5, "t", "f", "7B", "Q4", ("tools",), 4096
    )
    full = Tag("m", details=Details("F", "8B", "Q8", ("vision",), 8192))
    assert registry_model(full, shown) == registry_model(full, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda c: st.lists(c) | st.dictionaries(st.text(), c),
    max_leaves=10,
)
NAMES = ["name", "model", "size", "digest", "modified_at", "details", "capabilities", "remote_host"]


@given(st.binary(max_size=200) | JSON.map(encoded))
def test_no_answer_raises_anything_else(body: bytes) -> None:
    with suppress(RecordError):
        read_tags(body)
    with suppress(RecordError):
        read_show(body)


@given(st.lists(st.dictionaries(st.sampled_from(NAMES), JSON) | JSON), JSON)
def test_whatever_the_rows_are_they_can_be_pushed(rows: list[object], show: object) -> None:
    body = encoded({"models": rows}).replace(b"Infinity", b"1e999")
    details = Details()
    with suppress(RecordError):
        details = read_show(encoded(show))
    models = tuple(registry_model(t, details) for t in read_tags(body))
    payload = RegistryPushPayload("home", datetime(2026, 1, 1, tzinfo=UTC), models)
    assert json.loads(payload.to_json())["content_hash"]
