"""docker-compose.yml by Compose's own schema, and its services run by their command lines."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
import yaml
from containers import OURS, ROOT, Lab, compose
from rig.mosquitto import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PASSWORD: Final = "pa$ss #:'word"  # noqa: S105
PATIENCE_S: Final = 20.0
NEEDED: Final = {"MQTT_PASSWORD": PASSWORD}
LOGIN: Final = ("-u", "clusterllm", "-P", PASSWORD)
ASKING: Final = """
"$0" -m http.server 8123 -b 127.0.0.1 -d "$1" & server=$!
shift
for _ in $(seq 50); do "$0" "$@" 2>/dev/null && code=0 && break; code=1; sleep 0.1; done
kill $server
exit $code
"""
"""A page where Home Assistant has it, and the check until it succeeds."""


def schema_check(file: Path) -> subprocess.CompletedProcess[str]:
    """By the schema of the Compose specification, which check-jsonschema brings along."""
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    return subprocess.run([*checker, str(file)], capture_output=True, text=True, check=False)


def test_the_file_is_one_of_composes(tmp_path: Path) -> None:
    checked = schema_check(ROOT / "docker-compose.yml")
    assert checked.returncode == 0, checked.stdout
    broken = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    broken["services"]["bridge"]["helthcheck"] = {}
    tmp_path.joinpath("broken.yml").write_text(yaml.safe_dump(broken), encoding="utf-8")
    assert "helthcheck" in schema_check(tmp_path / "broken.yml").stdout


def env_example() -> set[str]:
    """The variables that the example has, commented out or not."""
    text = ROOT.joinpath(".env.example").read_text(encoding="utf-8")
    return set(re.findall(r"^(?:# )?([A-Z_]+)=", text, re.MULTILINE))


def test_the_example_has_every_variable_and_no_other() -> None:
    text = ROOT.joinpath("docker-compose.yml").read_text(encoding="utf-8")
    used = set(re.findall(r"\$\{(\w+)", text)) | set(
        re.findall(r"^ +(CLUSTERLLM_\w+):$", text, re.MULTILINE)
    )
    assert env_example() - used == {"COMPOSE_PROFILES"}
    assert used <= env_example()


def test_without_a_password_nothing_starts() -> None:
    with pytest.raises(KeyError, match="write it into"):
        compose({})


def test_what_is_mounted_or_copied_is_there() -> None:
    mounted = [v for s in compose(NEEDED)["services"].values() for v in s["volumes"]]
    files = [v.partition(":")[0] for v in mounted if v.startswith(".")]
    dockerfile = ROOT.joinpath("Dockerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile, re.MULTILINE)
    sources = {source for line in copied for source in line.split()}
    assert OURS.keys() <= sources
    for file in {*files, *sources}:
        assert (ROOT / file).exists()
    sent = ROOT.joinpath(".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {source.split("/")[0] for source in sources} <= {line.lstrip("!") for line in sent}


def test_everything_of_ours_is_kept_small() -> None:
    services = compose(NEEDED)["services"]
    for name in ("mosquitto", "bridge", "outpost"):
        service = services[name]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    dockerfile = ROOT.joinpath("Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^USER (?!0|root)\d+$", dockerfile, re.MULTILINE)
    assert services["bridge"]["network_mode"] == "host"
    assert services["outpost"]["profiles"] == ["outpost"]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A host with a cloudbox that refuses the token, for lack of one."""
    outpost = {
        "CLUSTERLLM_OUTPOST__CLOUDBOX_URL": "http://127.0.0.1:9",
        "CLUSTERLLM_OUTPOST__TOKEN": "open-sesame-31337",
    }
    with Lab(tmp_path, {**NEEDED, **outpost}) as lab:
        yield lab


async def test_the_services_run_and_become_healthy(lab: Lab) -> None:
    lab.start("mosquitto")
    await eventually(lambda: lab.is_healthy("mosquitto"), PATIENCE_S)
    for name in ("bridge", "outpost"):
        lab.start(name)
        await eventually(lambda n=name: lab.is_healthy(n), PATIENCE_S)  # type: ignore[misc]
    assert lab.mqtt("mosquitto_sub", "-t", "#", "-C", "1", "-W", "3").returncode
    wrong = lab.mqtt(
        "mosquitto_sub", "-u", "clusterllm", "-P", "x", "-t", "#", "-C", "1", "-W", "3"
    )
    assert wrong.returncode
    topic = "clusterllm/bridge/home/status"
    read = ("mosquitto_sub", *LOGIN, "-t", topic, "-C", "1", "-W", "3")
    assert "endpoints" in lab.mqtt(*read).stdout

    assert lab.stop("bridge") == 0
    assert lab.stop("mosquitto") == 0
    assert not lab.is_healthy("outpost")
    lab.start("mosquitto")
    await eventually(lambda: lab.is_healthy("mosquitto"), PATIENCE_S)
    assert "endpoints" in lab.mqtt(*read).stdout, "what is retained survives a restart"
    await eventually(lambda: lab.is_healthy("outpost"), PATIENCE_S)
    assert lab.stop("outpost") == 0
    for name in ("mosquitto", "bridge", "outpost"):
        assert PASSWORD not in lab.log(name)
        assert "Traceback" not in lab.log(name)


async def test_an_outpost_that_cannot_work_waits_unhealthy_instead_of_restarting(lab: Lab) -> None:
    del lab.env["CLUSTERLLM_OUTPOST__TOKEN"]
    lab.start("mosquitto")
    await eventually(lambda: lab.is_healthy("mosquitto"), PATIENCE_S)
    lab.start("outpost")
    await eventually(lambda: "waiting to be stopped" in lab.log("outpost"), PATIENCE_S)
    assert not lab.is_healthy("outpost")
    assert lab.stop("outpost") == 2


async def test_home_assistants_health_check_asks_its_page(lab: Lab, tmp_path: Path) -> None:
    kind, _, *argv = compose(NEEDED)["services"]["homeassistant"]["healthcheck"]["test"]
    assert kind == "CMD"
    assert lab.on_host(sys.executable, *argv).returncode
    tmp_path.joinpath("manifest.json").write_text("{}", encoding="utf-8")
    asked = lab.on_host("sh", "-c", ASKING, sys.executable, str(tmp_path), *argv)
    assert asked.returncode == 0, asked.stderr


def test_a_broker_without_a_password_says_so(tmp_path: Path) -> None:
    with Lab(tmp_path, {**NEEDED, "MQTT_USERNAME": " "}) as lab:
        lab.env["MQTT_USERNAME"] = ""
        script = ROOT / "docker" / "mosquitto.sh"
        asked = lab.on_host("env", "-i", "PATH=/usr/bin:/bin", "sh", str(script))
    assert asked.returncode == 1
    assert "write them into .env" in asked.stderr
