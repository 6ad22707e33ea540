"""What the documentation says is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clusterllm_mqtt.cli.arguments import build_parser

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


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


def test_what_holds_a_threat_off_is_shown_by_a_test() -> None:
    """Each row of a threat names the tests that show it, and they are there."""
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line]
    threats = [row for row in rows if not row.startswith("| threat |")]
    assert all("`test_" in row for row in threats)
    named = set(re.findall(r"`(test_\w+)`", page)) - {"test_docs"}
    written = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8"))
    }
    assert len(threats) > 20
    assert named <= written, named - written
