"""`config check` and `schema`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml
from rig.program import call

from clusterllm_mqtt.config.settings import Settings
from clusterllm_mqtt.models import Info, ModelInfo, State

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "s3cret"  # noqa: S105  # not one


def check(tmp_path: Path, text: str) -> int:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return call("config", "check", str(path))


def test_what_is_in_force_is_shown_without_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        f"mqtt: {{host: a, username: u, password: {SECRET}}}\n"
        f"endpoints: [{{url: 'http://b', name: B, api_key: {SECRET}}}]\n"
        "probe: {interval: 1m}"
    )
    assert check(tmp_path, text) == 0
    out = capsys.readouterr().out
    assert SECRET not in out
    assert "# B: topics under clusterllm/bridge/home/endpoint/b-" in out
    shown = yaml.safe_load(out)
    assert shown["mqtt"]["host"] == "a"
    assert shown["probe"]["interval"] == 60


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("mqtt: {hots: x}", "config.yaml:1: mqtt.hots is no setting; did you mean host?"),
        ("mqtt: {host: a, tls: true, ca_file: /nonexistent}", "mqtt TLS files (/nonexistent): "),
        ("probe: {ca_file: /nonexistent}", "CA file '/nonexistent': No such file or directory"),
    ],
)
def test_what_does_not_fit_is_said_and_nothing_is_shown(
    tmp_path: Path, text: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path, text) == 2
    shown = capsys.readouterr()
    assert sentence in shown.err
    assert shown.out == ""


def test_without_a_file_the_defaults_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("config", "check") == 0
    assert Settings.model_validate(yaml.safe_load(capsys.readouterr().out)) == Settings()


def test_schemas_and_the_reference_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("schema") == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Settings"
    assert call("schema", "--markdown") == 0
    assert capsys.readouterr().out.startswith("# Configuration")


def test_the_schema_of_the_record_knows_every_field_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call("schema", "info") == 0
    schema = json.loads(capsys.readouterr().out)
    wire = Info(State.RUNNING, "a", "b", "c", 1, 1, (ModelInfo("m", 1),)).to_wire()
    assert wire.keys() == schema["properties"].keys()
    assert wire["models"][0].keys() == schema["properties"]["models"]["items"]["properties"].keys()
