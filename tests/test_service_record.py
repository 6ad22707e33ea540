"""A neighbour's records are hints; what is wrong with one is said."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_interface, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterllm_mqtt.defaults import PRIVATE_NETWORKS
from clusterllm_mqtt.errors import RecordError
from clusterllm_mqtt.service_record import (
    MAX_TXT_KEYS,
    Interface,
    ServiceRecord,
    is_allowed_host,
    service_from_record,
    txt_hints,
    usable_addresses,
)

RECORD = ServiceRecord(
    instance="box._llamacpp._tcp.local.",
    type="_llamacpp._tcp",
    host="Box.local.",
    port=8080,
    addresses=["192.168.1.5"],
    txt=b"",
)


def txt(*entries: bytes) -> bytes:
    return b"".join(bytes([len(entry)]) + entry for entry in entries)


def test_a_plain_record() -> None:
    service = service_from_record(RECORD)
    assert (service.name, service.url) == ("box", "http://192.168.1.5:8080")
    assert service.hosts == {"192.168.1.5", "box.local"}
    assert service.backend == ""


def test_the_documented_keys_and_their_aliases() -> None:
    documented = txt(b"txtvers=1", b"proto=https", b"backend=llamacpp", b"path=/llm", b"model=m")
    aliases = txt(b"scheme=https", b"type=llama.cpp", b"api_path=/llm/", b"models=m")
    for raw in (documented, aliases):
        service = service_from_record(replace(RECORD, txt=raw))
        assert service.url == "https://192.168.1.5:8080/llm"
        assert service.backend == "llamacpp"
        assert dict(service.txt)["model"] == "m"


def test_a_documented_key_counts_before_its_alias_whatever_their_order() -> None:
    raw = txt(b"type=chat", b"backend=gpustack", b"api_path=/b", b"path=/a")
    assert txt_hints(raw) == {"backend": "gpustack", "path": "/a"}


@pytest.mark.parametrize(
    ("path", "prefix"),
    [
        ("/", ""),
        ("/llm/", "/llm"),
        ("/v1", ""),
        ("/llm/v1/", "/llm"),
        ("/v1-openai", ""),
        ("/v10", "/v10"),
        ("/v1/llm", "/v1/llm"),
    ],
)
def test_the_path_is_a_prefix_and_the_api_version_that_many_write_is_no_part_of_it(
    path: str, prefix: str
) -> None:
    service = service_from_record(replace(RECORD, txt=txt(b"path=" + path.encode())))
    assert service.url == f"http://192.168.1.5:8080{prefix}"


@pytest.mark.parametrize(
    ("raw", "hints"),
    [
        (b"", {}),
        (b"\x00", {}),
        (txt(b"Path=/a", b"PATH=/b"), {"path": "/a"}),
        (txt(b"flag", b"empty="), {"flag": "", "empty": ""}),
        (txt(b"=value", b"\xff=x", b"a\x00=x"), {}),
        (txt(b"name=\xff\xfe"), {"name": "\ufffd\ufffd"}),
        (txt(b"name=a=b"), {"name": "a=b"}),
        (b"\x05path=", {"path": ""}),
        (b"\x50path=/cut", {}),
        (txt(b"name=\x1b[31m"), {"name": "[31m"}),
    ],
)
def test_txt_is_read_as_far_as_it_goes(raw: bytes, hints: dict[str, str]) -> None:
    assert txt_hints(raw) == hints


def test_txt_is_capped() -> None:
    assert len(txt_hints(txt(*(b"k%d=v" % n for n in range(200))))) <= MAX_TXT_KEYS
    assert "late" not in txt_hints(txt(*[b"x" * 255] * 6, b"late=1"))


@given(st.binary(max_size=2000))
def test_random_txt_never_raises(raw: bytes) -> None:
    try:
        service = service_from_record(replace(RECORD, txt=raw))
    except RecordError:
        return
    assert service.url.startswith(("http://192.168.1.5:8080", "https://192.168.1.5:8080"))


@pytest.mark.parametrize(
    "path", ["x", "//evil", "/../a", "/a/./b", "/a?b", "/a#b", "/a\\b", "/%2e%2e", "/a b", "/a//b"]
)
def test_a_path_is_one_absolute_path_or_the_record_is_refused(path: str) -> None:
    with pytest.raises(RecordError, match="path"):
        service_from_record(replace(RECORD, txt=txt(b"path=" + path.encode())))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"port": 0}, "port 0"),
        ({"port": 70000}, "port 70000"),
        ({"txt": txt(b"proto=gopher")}, "proto gopher"),
        ({"addresses": ["8.8.8.8"]}, "no address"),
        ({"addresses": []}, "no address"),
        ({"addresses": ["nonsense"]}, "no address"),
        ({"addresses": ["127.0.0.1"]}, "no address"),
        ({"type": "_http._tcp"}, "without a TXT hint"),
        ({"type": "_HTTP._TCP"}, "without a TXT hint"),
        ({"type": "_ollama._tcp", "txt": txt(b"backend=ollama")}, "without a TXT hint"),
    ],
)
def test_what_may_not_be_probed_is_refused_with_a_reason(
    change: dict[str, object], why: str
) -> None:
    with pytest.raises(RecordError, match=why):
        service_from_record(replace(RECORD, **change))  # type: ignore[arg-type]


def test_a_noisy_type_with_a_hint_is_taken() -> None:
    record = replace(RECORD, type="_http._tcp", txt=txt(b"backend=gpustack"))
    assert service_from_record(record).backend == "gpustack"


def test_loopback_counts_for_this_host_only() -> None:
    own = replace(RECORD, addresses=["127.0.0.1"], is_own=True)
    assert service_from_record(own).url == "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("addresses", "best"),
    [
        (["fd00::5", "192.168.1.5", "10.0.0.1"], "10.0.0.1"),
        (["169.254.1.1", "192.168.1.5"], "192.168.1.5"),
        (["fe80::1", "fd00::5"], "fd00::5"),
        (["fe80::1%eth0"], "fe80::1%eth0"),
        (["fe80::1"], None),
        (["172.32.0.1", "100.64.0.1", "2001:db8::1", "224.0.0.1"], None),
    ],
)
def test_the_best_address_first(addresses: list[str], best: str | None) -> None:
    found = usable_addresses(addresses, allowed=PRIVATE_NETWORKS, is_own=False)
    assert (found[0] if found else None) == best


def test_ipv6_goes_into_brackets_with_its_scope_escaped() -> None:
    found = service_from_record(replace(RECORD, addresses=["fe80::1%eth0"]))
    assert found.url == "http://[fe80::1%25eth0]:8080"


def test_the_address_in_use_stays_while_it_is_named() -> None:
    before = service_from_record(replace(RECORD, addresses=["10.0.0.15"]))
    more = replace(RECORD, addresses=["10.0.0.1", "10.0.0.15", "10.0.0.150"])
    assert service_from_record(more).url == "http://10.0.0.1:8080"
    assert service_from_record(more, before=before).url == before.url
    moved = replace(more, port=8090, txt=txt(b"path=/llm"))
    assert service_from_record(moved, before=before).url == "http://10.0.0.15:8090/llm"
    left = replace(RECORD, addresses=["10.0.0.150", "10.0.0.1"])
    assert service_from_record(left, before=before).url == "http://10.0.0.1:8080"


def test_an_address_with_a_zone_in_use_stays_too() -> None:
    both = replace(RECORD, addresses=["fe80::1%eth0", "fe80::2%eth0"])
    before = service_from_record(replace(RECORD, addresses=["fe80::2%eth0"]))
    assert service_from_record(both, before=before).url == before.url


LAN = ip_interface("192.168.1.9/24")
DOCKER = ip_interface("172.17.0.1/16")


@pytest.mark.parametrize(
    ("local", "best"),
    [
        ([], "10.8.0.2"),
        ([LAN], "192.168.1.5"),
        ([LAN, DOCKER], "192.168.1.5"),
        ([DOCKER], "10.8.0.2"),
    ],
)
def test_a_network_that_we_are_in_comes_first_and_our_own_address_last(
    local: list[Interface], best: str
) -> None:
    addresses = ["172.17.0.1", "10.8.0.2", "192.168.1.5"]
    found = usable_addresses(addresses, allowed=PRIVATE_NETWORKS, is_own=False, local=local)
    assert found[0] == best
    assert len(found) == 3


def test_our_own_address_is_as_good_as_any_in_our_own_record() -> None:
    found = usable_addresses(
        ["172.17.0.1", "192.168.1.9"], allowed=PRIVATE_NETWORKS, is_own=True, local=[LAN, DOCKER]
    )
    assert found == ["172.17.0.1", "192.168.1.9"]


def test_what_is_no_host_is_refused_whatever_is_allowed() -> None:
    everything = [ip_network("0.0.0.0/0"), ip_network("::/0")]
    hosts = ["0.0.0.0", "::", "224.0.0.251", "ff02::fb", "127.0.0.1", "::1"]  # noqa: S104
    assert usable_addresses(hosts, allowed=everything, is_own=False) == []


def test_other_networks_can_be_allowed() -> None:
    networks = [ip_network("100.64.0.0/10")]
    assert is_allowed_host("100.64.0.1", networks)
    assert not is_allowed_host("192.168.1.5", networks)
    assert not is_allowed_host("box.lan", networks)


def test_a_name_is_cleaned_and_cut() -> None:
    name = "a\x1b[31m" + "x" * 300
    service = service_from_record(replace(RECORD, instance=f"{name}._llamacpp._tcp.local."))
    assert len(service.name) <= 63
    assert "\x1b" not in service.name
    empty = replace(RECORD, instance="\x00._llamacpp._tcp.local.")
    assert service_from_record(empty).name == "unnamed"
