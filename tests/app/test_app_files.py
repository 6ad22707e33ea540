"""The app's files by the Supervisor's rules, and one to one with our settings."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from app_rules import (
    config_mistakes,
    option_mistakes,
    schema_mistakes,
    translation_mistakes,
)
from pydantic import BaseModel

import clusterllm_mqtt
from clusterllm_mqtt.config.settings import EndpointSettings, Settings

ROOT: Final = Path(__file__).parents[2]
APP: Final = ROOT / "homeassistant" / "app"
LEFT_OUT: Final = {
    "mqtt.password_file": "a secret is an option, which Home Assistant hides",
    "endpoints.api_key_file": "the same",
    "outpost.token_file": "the same",
    "mqtt.cert_file": "its key would have to be readable for all",
    "mqtt.key_file": "the same",
}
SECRETS: Final = {"mqtt.password", "endpoints.api_key", "outpost.token"}


def loaded(path: Path) -> Any:  # noqa: ANN401  # YAML
    return yaml.safe_load(path.read_text(encoding="utf-8"))


CONFIG: Final = loaded(APP / "config.yaml")
SCHEMA: Final = CONFIG["schema"]
# every option, and what a person may write there
FULL: Final = {
    "endpoints": [
        {
            "url": "http://192.168.1.10:8080",
            "name": "Big box",
            "key": "big-box-0123456789",
            "api_key": "sk-1",
            "backend": "llamacpp",
        }
    ],
    "mdns": {
        "enabled": False,
        "extra_service_types": ["_ollama._tcp"],
        "interfaces": ["192.168.1.2"],
        "allowed_networks": ["192.168.0.0/16", "fc00::/7"],
        "max_endpoints": 10,
        "forget_after": "12h",
    },
    "probe": {"interval": "1.5m", "failure_threshold": 3, "ca_file": "/ssl/ca.pem"},
    "bridge": {"id": "attic"},
    "home_assistant": {"enabled": True, "discovery_prefix": "ha"},
    "mqtt": {
        "host": "192.168.1.3",
        "port": 8883,
        "username": "me",
        "password": "open sesame",
        "tls": True,
        "ca_file": "/ssl/ca.pem",
        "protocol": "5",
        "base_topic": "llm",
    },
    "outpost": {
        "cloudbox_url": "https://cloudbox.example.org",
        "token": "t",
        "agent": "attic",
        "bridges": ["attic"],
        "ollama_url": "http://127.0.0.1:11434",
        "ca_file": "/ssl/ca.pem",
    },
    "log": {"level": "debug"},
}


def names(tree: object, place: str = "") -> set[str]:
    """Dotted names of all leaves."""
    if isinstance(tree, list) and tree and isinstance(tree[0], dict):
        tree = tree[0]
    if not isinstance(tree, dict):
        return {place}
    return {n for key, part in tree.items() for n in names(part, f"{place}.{key}".lstrip("."))}


def setting_names() -> set[str]:
    found = set()
    for name, section in Settings.model_fields.items():
        model = EndpointSettings if name == "endpoints" else section.annotation
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        found |= {f"{name}.{field}" for field in model.model_fields}
    return found


def test_the_supervisor_takes_the_configuration() -> None:
    assert config_mistakes(CONFIG) == []
    assert schema_mistakes(SCHEMA) == []
    assert option_mistakes(SCHEMA, CONFIG["options"]) == []
    assert set(CONFIG["arch"]) == {"aarch64", "amd64"}
    assert CONFIG["services"] == ["mqtt:need"]
    assert CONFIG["host_network"] is True


def test_the_rules_are_sharp() -> None:
    bad = {**CONFIG, "arch": ["armv7"], "startup": "before", "advanced": True, "timeout": 5}
    bad |= {"services": ["mqtt"], "slug": "a b", "map": [{"type": "config"}]}
    assert len(config_mistakes(bad)) == 7
    assert schema_mistakes({"a": "strs", "b": [], "c": {"d": {"e": {"f": "str"}}}, "g": 1})
    wrong = {**FULL, "log": {"level": "loud"}, "bridge": {}, "nonsense": 1, "endpoints": {}}
    wrong["probe"] = {"interval": "soon", "failure_threshold": 11}
    assert len(option_mistakes(SCHEMA, wrong)) == 6
    assert translation_mistakes({"a": {"b": "str"}}, {"a": {"name": "A"}, "c": {}})


def test_every_option_can_be_written_and_is_one_of_our_settings() -> None:
    assert option_mistakes(SCHEMA, FULL) == []
    assert names(FULL) == names(SCHEMA)
    settings = Settings.model_validate(FULL)
    assert settings.probe.interval == 90.0
    assert settings.mqtt.protocol == "5"


def test_every_setting_is_an_option_or_left_out_for_a_reason() -> None:
    assert names(SCHEMA) | LEFT_OUT.keys() == setting_names()
    assert not names(SCHEMA) & LEFT_OUT.keys()


def test_defaults_are_ours() -> None:
    assert Settings.model_validate(CONFIG["options"]) == Settings()


def test_exactly_the_secrets_are_hidden() -> None:
    def leaf(name: str) -> object:
        section, _, field = name.partition(".")
        part = SCHEMA[section]
        return (part[0] if isinstance(part, list) else part)[field]

    hidden = {name for name in names(SCHEMA) if str(leaf(name)).startswith("password")}
    assert hidden == SECRETS


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_option_is_explained(language: str) -> None:
    texts = loaded(APP / "translations" / f"{language}.yaml")
    assert texts.keys() == {"configuration"}
    assert translation_mistakes(SCHEMA, texts["configuration"]) == []


def test_the_version_is_that_of_the_package() -> None:
    assert CONFIG["version"] == clusterllm_mqtt.__version__
    changelog = (APP / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {CONFIG['version']}" in changelog


def test_the_image_is_named_labelled_and_runs_the_start_script() -> None:
    lines = (APP / "Dockerfile").read_text(encoding="utf-8")
    [base] = re.findall(r"^FROM (\S+)$", lines, re.MULTILINE)
    assert "$" not in base
    assert ":" in base
    for label in ("version", "type", "arch"):
        assert f"io.hass.{label}=" in lines
    [start] = re.findall(r'CMD \["python3", "(\S+)"\]', lines)
    assert (APP / "rootfs" / start.lstrip("/")).is_file()
    assert not list(APP.glob("build.*"))


def test_the_repository_holds_this_app_and_no_other() -> None:
    assert loaded(ROOT / "repository.yaml")["name"]
    # the Supervisor takes every such file outside of hidden folders and rootfs for an app
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    configs = [p for p in map(Path, listed.stdout.splitlines()) if p.stem == "config"]
    apps = [p for p in configs if p.suffix in {".yaml", ".yml", ".json"}]
    assert [p for p in apps if not any(part.startswith(".") for part in p.parts)] == [
        Path("homeassistant/app/config.yaml")
    ]


@pytest.mark.parametrize(("name", "size"), [("icon.png", (128, 128)), ("logo.png", (250, 100))])
def test_the_pictures_are_what_the_script_draws(name: str, size: tuple[int, int]) -> None:
    content = (APP / name).read_bytes()
    assert struct.unpack(">II", content[16:24]) == size
    draw = runpy.run_path(str(APP / "art" / "draw.py"))
    drawn = draw["pictures"]()[name]
    assert drawn[:33] == content[:33]
    assert draw["pixels"](drawn) == draw["pixels"](content)


def test_the_apparmor_profile_can_be_loaded_and_renamed() -> None:
    path = APP / "apparmor.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    # the Supervisor wants exactly one profile, and gives it another name
    assert len([line for line in lines if line.startswith("profile ")]) == 1
    assert f"profile {CONFIG['slug']} " in path.read_text(encoding="utf-8")
    parser = shutil.which("apparmor_parser", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert parser is not None
    subprocess.run([parser, "-QTK", str(path)], check=True, capture_output=True)


@pytest.mark.parametrize("page", ["README.md", "DOCS.md"])
def test_what_is_shown_in_the_store_stands_alone(page: str) -> None:
    text = (APP / page).read_text(encoding="utf-8")
    assert not re.findall(r"\]\((?!https?://)", text)


def test_the_options_in_the_documentation_can_be_pasted() -> None:
    [block] = re.findall(
        r"```yaml\n(.*?)```", (APP / "DOCS.md").read_text(encoding="utf-8"), re.DOTALL
    )
    options = yaml.safe_load(block)
    assert option_mistakes(SCHEMA, options) == []
    Settings.model_validate(options)
