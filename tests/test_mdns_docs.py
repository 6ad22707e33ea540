"""The Avahi files that users copy announce what a browser of ours takes."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from clusterllm_mqtt.mdns.browser import SERVICE_TYPES
from clusterllm_mqtt.service_record import ServiceRecord, service_from_record

DOCS = Path(__file__).parents[1] / "docs"
FILES = sorted((DOCS / "avahi").glob("*.service"))
TXT_LIMIT = 400
"""RFC 6763, section 6.2: up to 400 bytes fit into one packet with the rest."""


def record_of(path: Path) -> ServiceRecord:
    """What Avahi announces for a file."""
    group = ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314  # our own file
    name = group.findtext("name", "").replace("%h", "box")
    [service] = group.findall("service")
    service_type = service.findtext("type", "")
    entries = [(entry.text or "").encode() for entry in service.findall("txt-record")]
    return ServiceRecord(
        instance=f"{name}.{service_type}.local.",
        type=service_type,
        host="box.local.",
        port=int(service.findtext("port", "")),
        addresses=["192.168.1.5"],
        txt=b"".join(bytes([len(entry)]) + entry for entry in entries),
    )


def test_there_is_a_file_for_each_backend() -> None:
    assert [path.stem for path in FILES] == ["gpustack", "llamacpp"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_avahi_file_is_taken_by_a_default_browser(path: Path) -> None:
    record = record_of(path)
    service = service_from_record(record)
    assert record.type in SERVICE_TYPES
    assert service.backend == path.stem
    assert service.url == f"http://192.168.1.5:{record.port}"
    assert service.name.endswith(" on box")
    assert dict(service.txt)["txtvers"] == "1"
    assert len(record.txt) <= TXT_LIMIT


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_avahi_file_uses_only_what_avahi_knows(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith('<?xml version="1.0" standalone="no"?>\n')
    assert '<!DOCTYPE service-group SYSTEM "avahi-service.dtd">' in text
    group = ET.fromstring(text)  # noqa: S314  # our own file
    assert group.tag == "service-group"
    assert {element.tag for element in group.iter()} <= {
        "service-group", "name", "service", "type", "port", "txt-record",
    }  # fmt: skip
    name = group.find("name")
    assert name is not None
    assert name.get("replace-wildcards") == "yes"


def test_the_page_names_every_type_and_key() -> None:
    page = (DOCS / "mdns.md").read_text(encoding="utf-8")
    assert all(f"`{service_type}`" in page for service_type in SERVICE_TYPES)
    documented = {"txtvers", "path", "proto", "backend", "version", "model", "api", "auth", "id"}
    aliases = {"transport", "scheme", "type", "api_type", "api_path", "models"}
    assert documented | aliases <= set(re.findall(r"`(\w+)`", page))
