"""What the documentation says is so."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from clusterllm_mqtt.cli.arguments import build_parser
from clusterllm_mqtt.mdns.browser import SERVICE_TYPES
from clusterllm_mqtt.service_record import ServiceRecord, service_from_record

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("backend", ["llamacpp", "gpustack"])
def test_an_avahi_file_announces_what_the_bridge_browses(backend: str) -> None:
    text = (ROOT / f"docs/avahi/{backend}.service").read_text(encoding="utf-8")
    service = ET.fromstring(text).find("service")  # noqa: S314  # our own file
    assert service is not None
    service_type = service.findtext("type") or ""
    assert service_type in SERVICE_TYPES
    entries = [(entry.text or "").encode() for entry in service.findall("txt-record")]
    record = ServiceRecord(
        instance=f"box.{service_type}.local.",
        type=service_type,
        host="box.local.",
        port=int(service.findtext("port") or 0),
        addresses=["192.168.1.5"],
        txt=b"".join(bytes([len(entry)]) + entry for entry in entries),
    )
    assert service_from_record(record).backend == backend


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_can_be_typed(page: Path) -> None:
    pattern = r"`clusterllm-mqtt ([a-z][^`]*)`|^clusterllm-mqtt ([a-z].*)$"
    for found in re.findall(pattern, page.read_text(encoding="utf-8"), re.MULTILINE):
        words = re.sub(r"\[[A-Z]+\]", "", found[0] or found[1]).split()
        if words in (["config"], ["advertise"], ["probe"]):
            continue  # the command's name only
        build_parser().parse_args(words)
