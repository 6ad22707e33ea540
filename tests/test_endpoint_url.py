"""An endpoint is one base URL; what cannot be one is refused with the remedy."""

from __future__ import annotations

import pytest

from clusterllm_mqtt.endpoint_url import (
    alternative_bases,
    check_endpoint_url,
    is_loopback,
    trim_endpoint,
    without_credentials,
)
from clusterllm_mqtt.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "trimmed"),
    [
        ("", ""),
        (" \t\n ", ""),
        ("///", ""),
        (" / ", ""),
        ("http://box:8080///", "http://box:8080"),
        ("\u2003http://box\u00a0\r\n", "http://box"),
        ("http://", "http:"),
        ("\x1chttp://box", "\x1chttp://box"),  # no white space to Unicode, though to str.strip()
    ],
)
def test_white_space_goes_first_then_trailing_slashes(given: str, trimmed: str) -> None:
    assert trim_endpoint(given) == trimmed


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:18080",
        "https://box.local",
        "http://box/gpu/v1",
        "http://[::1]:8080",
        "http://[fe80::1%25eth0]:8080",
        "http://box/a%20b",
        "http://exämple.org/höme",
    ],
)
def test_a_base_url_passes_unchanged(url: str) -> None:
    assert check_endpoint_url(url) == url


def test_what_is_returned_is_trimmed() -> None:
    assert check_endpoint_url(" http://box:1/ ") == "http://box:1"


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("", "http://host:port"),
        ("box:8080", "http://host:port"),
        ("127.0.0.1:8080", "http://host:port"),
        ("ftp://box", "http://host:port or https://host:port"),
        ("http://", "http://host:port"),
        ("http://:8080", "http://host:port"),
        ("http://box:0", "http://host:port"),
        ("http://box:99999", "from 1 to 65535"),
        ("http://box:http", "from 1 to 65535"),
        ("http://[::bad", "from 1 to 65535"),
        ("http://box/a b", "white space"),
        ("http://box/ /", "white space"),
        ("http://box/a\x01b", "control characters"),
        ("http://box/%zz", "%25"),
        ("http://box/%", "%25"),
        ("http://box/a\\b", "%5C"),
        ("http://box/?a=1", "query"),
        ("http://box/#top", "fragment"),
        ("http://user@box", "api_key"),
        ("http://box/" + "a" * 3000, "shorten"),
    ],
)
def test_another_url_is_refused_with_its_remedy(url: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_endpoint_url(url)
    assert remedy in str(refused.value)


@pytest.mark.parametrize(
    "url", ["http://me:hunter2@box:8080/x", "http://hunter2@box", "http://box/?token=hunter2"]
)
def test_no_secret_of_the_url_is_in_the_message(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_endpoint_url(url)
    assert "box" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_credentials_are_taken_out_of_what_is_shown() -> None:
    assert without_credentials("http://me:pw@box:8080/a@b") == "http://box:8080/a@b"
    assert without_credentials("http://box/a@b") == "http://box/a@b"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:1", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:1", True),
        ("http://localhost", True),
        ("http://192.168.1.5", False),
        ("http://localhost.example.org", False),
    ],
)
def test_whether_an_url_names_this_machine(url: str, *, expected: bool) -> None:
    assert is_loopback(url) is expected


@pytest.mark.parametrize(
    ("url", "bases"),
    [
        ("http://box", ("http://box",)),
        ("http://box/v1", ("http://box/v1", "http://box")),
        ("http://box/api/v1", ("http://box/api/v1", "http://box/api")),
        ("http://box/v1/v1", ("http://box/v1/v1", "http://box/v1")),
        ("http://box//v1", ("http://box//v1", "http://box")),
        ("http://box/xv1", ("http://box/xv1",)),
        ("http://v1", ("http://v1",)),
    ],
)
def test_an_openai_base_url_has_its_parent_as_the_alternative(
    url: str, bases: tuple[str, ...]
) -> None:
    assert alternative_bases(url) == bases
