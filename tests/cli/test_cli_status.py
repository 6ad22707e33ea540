"""`status` and `clear`: what a real broker holds for a bridge."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from rig.mosquitto import Mosquitto, free_port
from rig.program import COMMAND, call, run
from rig.samples import at, configured, endpoint_state

from clusterllm_mqtt.cli.clear import clearing_messages
from clusterllm_mqtt.cli.status import read_report
from clusterllm_mqtt.models import EndpointState, Info, MdnsHealth, ModelInfo, Reason, State
from clusterllm_mqtt.mqtt.messages import BridgeFacts, availability_message
from clusterllm_mqtt.mqtt.retained import RetainedMessages
from clusterllm_mqtt.mqtt.topics import BridgeTopics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOPICS = BridgeTopics()
OTHERS = {"clusterllm/bridge/other/status": b"{}", "clusterllm/outpost/a/status": b"{}"}


def endpoint(number: int, state: State = State.RUNNING) -> EndpointState:
    info = Info(
        state,
        backend="llamacpp",
        member_count=2,
        aggregate_vram_bytes=24 * 2**30,
        models=(ModelInfo("/models/big.gguf"),),
    )
    reason = None if state is State.RUNNING else Reason.TIMEOUT
    found = endpoint_state(configured(f"box {number}"), info, reason=reason)
    return replace(found, probed_at=datetime.now(UTC))


def tree(*states: EndpointState, online: bool = True) -> dict[str, bytes]:
    """What a bridge with these endpoints leaves on a broker."""
    desired = RetainedMessages(TOPICS).all(BridgeFacts("1", at(0), MdnsHealth()), states, {})
    availability = availability_message(TOPICS, online=online)
    return {m.topic: m.payload for m in (*desired.values(), availability)}


def retain(broker: Mosquitto, topics: dict[str, bytes]) -> None:
    broker.publish_many({topic: payload.decode() for topic, payload in topics.items()})


@pytest.fixture
def config(tmp_path: Path, mosquitto: Mosquitto) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(f"mqtt: {{host: 127.0.0.1, port: {mosquitto.port}}}", encoding="utf-8")
    return str(path)


def test_trouble_comes_first_and_is_exit_code_1(
    mosquitto: Mosquitto, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    retain(mosquitto, tree(endpoint(0), endpoint(1, State.NOT_REACHABLE)))
    assert call("status", config) == 1
    out = capsys.readouterr().out
    first, *_, last = (line for line in out.splitlines() if "box" in line)
    assert "box 1" in first
    assert "not_reachable" in first
    assert "timeout" in first
    for cell in ("box 0", "llamacpp", "running", "24.0 GiB", "big.gguf"):
        assert cell in last
    assert out.startswith("bridge home: online\n")


def test_status_prints_every_record_as_json(
    mosquitto: Mosquitto, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    state = endpoint(0)
    retain(mosquitto, tree(state))
    assert call("status", config, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["online"] is True
    assert printed["status"]["state"] == "running"
    assert printed["endpoints"][state.endpoint.key]["info"] == state.info.to_wire()
    assert printed["endpoints"][state.endpoint.key]["probe"]["name"] == "box 0"


def test_all_is_well_only_while_the_bridge_lives(mosquitto: Mosquitto, config: str) -> None:
    retain(mosquitto, tree(endpoint(0)))
    done = run("status", config)
    assert (done.returncode, done.stderr) == (0, "")
    retain(mosquitto, tree(endpoint(0), online=False))
    assert run("status", config).returncode == 1


def test_an_online_beside_old_probes_is_left_from_a_bridge_that_died_with_its_broker(
    mosquitto: Mosquitto, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old = replace(endpoint(0), probed_at=datetime.now(UTC) - timedelta(hours=3))
    retain(mosquitto, tree(old))
    assert call("status", config) == 1
    out = capsys.readouterr().out
    assert out.startswith("bridge home: offline\nit says online, but its last sign of life is 3 h")
    assert call("clear", config, "--yes") == 0


def test_a_bridge_that_never_was_has_no_endpoints(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("status", config) == 1
    assert capsys.readouterr().out == "bridge home: offline\nno endpoints\n"
    assert call("status", config, "--json") == 1
    assert json.loads(capsys.readouterr().out)["status"] is None


@pytest.mark.parametrize("payload", [b"{", b"[]", b"\xff", b'{"state": "great"}', b"x" * 2**20])
def test_garbage_is_named_and_breaks_nothing(payload: bytes) -> None:
    state = endpoint(0)
    held = {**tree(endpoint(1), state), TOPICS.info(state.endpoint.key): payload}
    report = read_report(TOPICS, held, now=at(65))
    assert [row.name for row in report.rows] == ["box 1"]
    assert report.unreadable == (state.endpoint.key,)
    assert not report.is_fine


def test_a_record_that_the_index_promises_and_nobody_has_is_trouble(
    mosquitto: Mosquitto, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    state = endpoint(0)
    topics = tree(state)
    del topics[TOPICS.info(state.endpoint.key)]
    retain(mosquitto, topics)
    assert call("status", config) == 1
    shown = capsys.readouterr()
    assert f"{state.endpoint.key}: its record is missing or unreadable" in shown.err
    assert "no endpoints" in shown.out


def test_without_probe_facts_the_record_is_shown_by_its_key() -> None:
    state = endpoint(0)
    held = {**tree(state), TOPICS.probe(state.endpoint.key): b"{}"}
    (row,) = read_report(TOPICS, held, now=at(65)).rows
    assert (row.name, row.age_s) == (state.endpoint.key, None)
    (row,) = read_report(TOPICS, tree(state), now=at(65)).rows
    assert (row.name, row.age_s) == ("box 0", 60)


def test_a_record_that_is_garbage_is_null_in_json(
    mosquitto: Mosquitto, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    retain(mosquitto, {TOPICS.info("k"): b"{", TOPICS.status: b"[]"})
    assert call("status", config, "--json") == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["endpoints"] == {"k": {"info": None}}
    assert printed["status"] is None


def test_a_name_with_markup_and_escapes_is_only_text(
    mosquitto: Mosquitto, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "[/red]\x1b[31m[bold]x"
    info = Info(State.RUNNING, models=(ModelInfo("[/oops]"),))
    named = replace(endpoint(0), endpoint=configured(name), info=info)
    retain(mosquitto, tree(named))
    assert call("status", config) == 0
    out = capsys.readouterr().out
    assert "[/red] [31m[bold]x" in out
    assert "\x1b" not in out


def test_no_broker_is_exit_code_3() -> None:
    port = str(free_port())
    done = run("status", CLUSTERLLM_MQTT__HOST="127.0.0.1", CLUSTERLLM_MQTT__PORT=port)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        f"clusterllm-mqtt: 127.0.0.1:{port}: no connection; is the broker up?"
    )


def test_a_wrong_password_is_exit_code_3_and_not_shown(
    make_mosquitto: Callable[..., Mosquitto], tmp_path: Path
) -> None:
    (tmp_path / "passwords").write_text("", encoding="utf-8")
    broker = make_mosquitto(f"password_file {tmp_path / 'passwords'}", anonymous=False)
    done = run(
        "status",
        CLUSTERLLM_MQTT__HOST="127.0.0.1",
        CLUSTERLLM_MQTT__PORT=str(broker.port),
        CLUSTERLLM_MQTT__USERNAME="me",
        CLUSTERLLM_MQTT__PASSWORD="s3cret",  # noqa: S106  # not one
    )
    assert done.returncode == 3
    assert "refused the connection: Not authorized; check mqtt.username and" in done.stderr
    assert "s3cret" not in done.stderr


def test_clear_leaves_nothing_of_this_bridge_and_all_of_others(
    mosquitto: Mosquitto, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topics = tree(endpoint(0), endpoint(1), online=False)
    retain(mosquitto, {**topics, **OTHERS})
    assert call("clear", config, "--yes") == 0
    assert capsys.readouterr().out == f"bridge home: {len(topics)} topics cleared\n"
    assert mosquitto.retained() == OTHERS
    assert call("clear", config, "--yes") == 0
    assert capsys.readouterr().out == "bridge home: 0 topics cleared\n"


def test_clear_takes_what_somebody_else_left_below_our_root(
    mosquitto: Mosquitto, config: str
) -> None:
    topics = tree(endpoint(0), online=False)
    strange = {f"{TOPICS.root}/endpoint/UPPER/info": b"{}", f"{TOPICS.root}/x": b"1"}
    retain(mosquitto, {**topics, **strange, **OTHERS})
    assert call("clear", config, "--yes") == 0
    assert mosquitto.retained() == OTHERS


def test_an_online_bridge_is_cleared_by_force_only(
    mosquitto: Mosquitto, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topics = tree(endpoint(0))
    retain(mosquitto, topics)
    assert call("clear", config, "--yes") == 2
    assert "is online and would publish everything again; stop it first" in capsys.readouterr().err
    assert mosquitto.retained().keys() == topics.keys()
    assert call("clear", config, "--yes", "--force") == 0
    assert mosquitto.retained() == {}


def test_without_a_terminal_clear_wants_to_be_told(config: str) -> None:
    done = run("clear", config)
    assert done.returncode == 2
    assert done.stderr.endswith("remove all retained topics of bridge home? Say so with --yes\n")


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 1), (b"\n", 1), (b"y\n", 0)])
def test_on_a_terminal_clear_asks(
    mosquitto: Mosquitto, config: str, answer: bytes, code: int
) -> None:
    topics = tree(online=False)
    retain(mosquitto, topics)
    leader, follower = os.openpty()
    os.write(leader, answer)
    done = subprocess.run(
        [*COMMAND, "clear", config], stdin=follower, capture_output=True, timeout=20, check=False
    )
    os.close(leader)
    os.close(follower)
    assert done.returncode == code
    assert b"remove all retained topics of bridge home? [y/N]" in done.stdout
    assert mosquitto.retained().keys() == (set() if code == 0 else topics.keys())


def test_devices_go_before_the_records_that_their_entities_read() -> None:
    state = endpoint(0)
    cleared = [message.topic for message in clearing_messages(TOPICS, tree(state))]
    assert cleared[0] == TOPICS.discovery(state.endpoint.key)
    assert cleared[-2:] == [TOPICS.status, TOPICS.availability]
