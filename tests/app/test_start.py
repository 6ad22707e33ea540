"""The app's start script with a Supervisor's API, a real Mosquitto, and the real commands."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from fake_supervisor import PASSWORD, TOKEN, mqtt_service, supervising
from rig.mosquitto import eventually, free_port

from clusterllm_mqtt.demo.receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rig.mosquitto import Mosquitto

START: Final = (
    Path(__file__).parents[2] / "homeassistant/app/rootfs/usr/local/lib/clusterllm-mqtt/start.py"
)
PATIENCE_S: Final = 20.0
PUSH_TOKEN: Final = "open-sesame-31337"  # noqa: S105
OPTIONS: Final[dict[str, Any]] = {
    "endpoints": [{"url": "http://127.0.0.1:9", "name": "Big box", "key": "", "api_key": ""}],
    "mdns": {"enabled": False},
    "probe": {"interval": "15s", "failure_threshold": 2},
    "mqtt": {},
    "outpost": {},
    "log": {"level": "debug"},
}


@pytest.fixture
def broker(make_mosquitto: Callable[..., Mosquitto], tmp_path: Path) -> Mosquitto:
    """The broker's app: who has no password may only look."""
    passwords, acl = tmp_path / "passwords", tmp_path / "acl"
    command = ["mosquitto_passwd", "-b", "-c", str(passwords), "addons", PASSWORD]
    subprocess.run(command, check=True, capture_output=True)
    acl.write_text("topic read #\nuser addons\ntopic readwrite #\n", encoding="utf-8")
    return make_mosquitto(f"password_file {passwords}", f"acl_file {acl}")


@pytest.fixture
def registry() -> Iterator[Receiver]:
    """A cloudbox."""
    with Receiver(PUSH_TOKEN) as receiver:
        yield receiver


class App:
    """The script in a process, as the Supervisor starts it; `log` is what it has said."""

    def __init__(self, folder: Path, options: object, *argv: str, token: str = TOKEN) -> None:
        self.folder = folder / "memory"
        self.folder.mkdir(exist_ok=True)
        self._log = folder / "app.log"
        file = folder / "options.json"
        file.write_text(options if isinstance(options, str) else json.dumps(options), "utf-8")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("CLUSTERLLM_")}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        user = "root" if os.geteuid() == 0 else "nobody"
        command = [sys.executable, str(START), "--options", str(file), "--user", user]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--folder", str(self.folder), *argv],
                env={**inherited, "PATH": path, "SUPERVISOR_TOKEN": token},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def ends(self) -> int:
        """Its exit code."""
        return self.process.wait(PATIENCE_S)

    def stop(self) -> int:
        """As the Supervisor stops it; its exit code."""
        self.process.terminate()
        return self.ends()

    def children(self) -> dict[str, int]:
        """Command -> pid of what it started."""
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found: dict[str, int] = {}
        for pid in map(int, task.read_text(encoding="ascii").split()):
            argv = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
            found |= {what: pid for what in ("bridge", "outpost") if what in argv}
        return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., App]]:
    """Start apps; all are ended with the test."""
    apps: list[App] = []

    def starting(options: object, *argv: str, token: str = TOKEN) -> App:
        apps.append(App(tmp_path, options, *argv, token=token))
        return apps[-1]

    yield starting
    for app in apps:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(app.process.pid, signal.SIGKILL)
        app.process.wait()


def is_online(broker: Mosquitto, *whom: str) -> bool:
    held = broker.retained("clusterllm/+/+/availability")
    return all(held.get(f"clusterllm/{who}/availability") == b"online" for who in whom)


def outpost_options(registry: Receiver, token: str) -> dict[str, Any]:
    return {**OPTIONS, "outpost": {"cloudbox_url": registry.url, "token": token, "agent": ""}}


async def test_the_bridge_takes_the_supervisors_broker_and_tells_nobody(
    broker: Mosquitto, start: Callable[..., App]
) -> None:
    with supervising(mqtt_service(broker.port)) as supervisor:
        app = start(OPTIONS, "--supervisor", supervisor.url)
        await eventually(lambda: is_online(broker, "bridge/home"), PATIENCE_S)
    process = Path(f"/proc/{app.process.pid}")
    assert PASSWORD.encode() not in process.joinpath("cmdline").read_bytes()
    environ = process.joinpath("environ").read_bytes()
    assert TOKEN.encode() not in environ
    assert PASSWORD.encode() not in environ
    [file] = app.folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert app.stop() == 0
    assert broker.retained("clusterllm/bridge/home/availability") == {
        "clusterllm/bridge/home/availability": b"offline"
    }
    assert TOKEN not in app.log
    assert PASSWORD not in app.log


async def test_with_a_cloudbox_the_outpost_runs_beside_it(
    broker: Mosquitto, start: Callable[..., App], registry: Receiver
) -> None:
    with supervising(mqtt_service(broker.port)) as supervisor:
        app = start(outpost_options(registry, PUSH_TOKEN), "--supervisor", supervisor.url)
        both = ("bridge/home", "outpost/home")
        await eventually(lambda: is_online(broker, *both), PATIENCE_S)
    assert app.stop() == 0
    held = broker.retained("clusterllm/+/+/availability")
    assert set(held.values()) == {b"offline"}
    assert PUSH_TOKEN not in app.log


async def test_an_outpost_whose_token_is_refused_leaves_the_bridge_alone(
    broker: Mosquitto, start: Callable[..., App], registry: Receiver
) -> None:
    with supervising(mqtt_service(broker.port)) as supervisor:
        app = start(outpost_options(registry, "another-token"), "--supervisor", supervisor.url)
        await eventually(lambda: "the bridge goes on" in app.log, PATIENCE_S)
        assert "the registry no longer accepts its token (4)" in app.log
        await eventually(lambda: is_online(broker, "bridge/home"), PATIENCE_S)
    assert app.children().keys() == {"bridge"}
    assert app.stop() == 0


@pytest.mark.parametrize("victim", ["bridge", "outpost"])
async def test_one_that_dies_ends_the_app_for_the_watchdog(
    broker: Mosquitto, start: Callable[..., App], registry: Receiver, victim: str
) -> None:
    with supervising(mqtt_service(broker.port)) as supervisor:
        app = start(outpost_options(registry, PUSH_TOKEN), "--supervisor", supervisor.url)
        both = ("bridge/home", "outpost/home")
        await eventually(lambda: is_online(broker, *both), PATIENCE_S)
    os.kill(app.children()[victim], signal.SIGKILL)
    assert app.ends() == 128 + signal.SIGKILL


async def test_a_broker_that_starts_later_is_waited_for(
    broker: Mosquitto, start: Callable[..., App]
) -> None:
    with supervising(None) as supervisor:
        app = start(OPTIONS, "--supervisor", supervisor.url)
        await eventually(lambda: "waiting for it" in app.log, PATIENCE_S)
        supervisor.service = mqtt_service(broker.port)
        await eventually(lambda: is_online(broker, "bridge/home"), PATIENCE_S)
    assert app.log.count("waiting for it") == 1


async def test_a_broker_of_ones_own_is_not_asked_for(
    mosquitto: Mosquitto, start: Callable[..., App]
) -> None:
    with supervising(None) as supervisor:
        own = {"host": "127.0.0.1", "port": mosquitto.port}
        start({**OPTIONS, "mqtt": own}, "--supervisor", supervisor.url)
        await eventually(lambda: is_online(mosquitto, "bridge/home"), PATIENCE_S)
        assert supervisor.asked == 0


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ("{", 2, "options.json: no JSON"),
        ("[]", 2, "options.json: no options by name"),
        ({"nonsense": 1}, 2, "nonsense"),
        ({"probe": {"interval": "soon"}}, 2, "probe.interval"),
        ({"bridge": {"id": "NO"}}, 2, "bridge id 'NO'"),
    ],
)
def test_options_of_no_use_are_named(
    start: Callable[..., App], options: object, code: int, says: str
) -> None:
    with supervising(mqtt_service(free_port())) as supervisor:
        app = start(options, "--supervisor", supervisor.url)
        assert app.ends() == code
    assert says in app.log
    assert "Traceback" not in app.log
    assert PASSWORD not in app.log


Broken = tuple[int, bytes] | None


@pytest.mark.parametrize(
    ("broken", "token", "says"),
    [
        (None, "wrong", "the Supervisor refuses us its MQTT service (401)"),
        ((403, b"{}"), TOKEN, "the Supervisor refuses us its MQTT service (403)"),
        ((400, b"{}"), TOKEN, "there is no MQTT service"),
        ((502, b"<html>"), TOKEN, "there is no MQTT service"),
        ((200, b"<html>"), TOKEN, "cannot be read"),
        ((200, b'{"data": {"host": "h", "port": "x"}}'), TOKEN, "cannot be read"),
        ((200, b'{"data": null}'), TOKEN, "cannot be read"),
    ],
)
def test_a_supervisor_of_no_help_is_named(
    start: Callable[..., App], broken: Broken, token: str, says: str
) -> None:
    with supervising(mqtt_service(free_port())) as supervisor:
        supervisor.broken = broken
        app = start(OPTIONS, "--supervisor", supervisor.url, "--patience", "0.2", token=token)
        assert app.ends() == 3
    assert says in app.log
    assert "Traceback" not in app.log


def test_no_supervisor_at_all_is_named(start: Callable[..., App]) -> None:
    supervisor = f"http://127.0.0.1:{free_port()}"
    app = start(OPTIONS, "--supervisor", supervisor, "--patience", "0.2")
    assert app.ends() == 3
    assert "the Supervisor does not answer" in app.log


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another")
def test_root_becomes_the_user_for_good() -> None:
    program = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); import start; start.become('nobody');"
        "print(os.getresuid(), os.getresgid(), os.getgroups(), file=sys.stderr); os.setuid(0)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(START.parent)], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr.startswith("(65534, 65534, 65534) (65534, 65534, 65534) []")
    assert "PermissionError" in ended.stderr


def test_a_user_that_is_not_there_is_named(start: Callable[..., App], tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another")
    app = start(OPTIONS, "--user", "nobody-of-that-name", "--folder", str(tmp_path))
    assert app.ends() == 2
    assert "there is no user 'nobody-of-that-name'" in app.log
