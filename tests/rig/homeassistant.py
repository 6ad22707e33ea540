"""A real Home Assistant on a free loopback port, with its MQTT integration; ended by pid."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any, Final, Self

import httpx
from websockets.sync.client import ClientConnection, connect

from rig.mosquitto import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START_S: Final = 180.0
_CONFIGURATION: Final = """\
homeassistant:
  name: Test
  time_zone: Etc/UTC
  country: NL
  packages: !include_dir_named packages
http:
  server_host: 127.0.0.1
  server_port: {port}
api:
automation: !include automations.yaml
blueprint:
config:
frontend:
history:
persistent_notification:
recorder:
  commit_interval: 1
system_log:
websocket_api:
lovelace:
  dashboards:
    clusterllm-home:
      mode: yaml
      title: Language models
      filename: dashboards/clusterllm.yaml
"""
# Only the owner is left for the API: the other steps start integrations that ask hosts elsewhere.
_ONBOARDING: Final = {
    "version": 4, "minor_version": 1, "key": "onboarding",
    "data": {"done": ["core_config", "analytics", "integration"]},
}  # fmt: skip


class HomeAssistant:
    """One instance; `venv` is where `homeassistant_install` put it, `folder` its configuration."""

    def __init__(self, venv: Path, folder: Path) -> None:
        self._venv = venv
        self.folder = folder
        self.url = f"http://127.0.0.1:{free_port()}"
        self._token = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._http = httpx.Client(base_url=self.url, trust_env=False, timeout=30)
        for name in ("packages", "dashboards", "blueprints/automation", ".storage"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        port = self.url.rpartition(":")[2]
        self.write("configuration.yaml", _CONFIGURATION.format(port=port))
        self.write("automations.yaml", "[]")
        self.write(".storage/onboarding", json.dumps(_ONBOARDING))

    def write(self, name: str, text: str) -> None:
        """Write a file of its configuration."""
        (self.folder / name).write_text(text, encoding="utf-8")

    # starting and stopping

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._http.close()

    def start(self) -> None:
        """Start it, and wait until it runs; the first time it gets its owner."""
        path = f"{self._venv / 'bin'}:{os.environ['PATH']}"
        command = [str(self._venv / "bin" / "hass"), "-c", str(self.folder), "--skip-pip"]
        self._process = subprocess.Popen(
            [*_without_resolver(self.folder), *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "PATH": path},
        )  # fmt: skip
        deadline_s = time.monotonic() + START_S
        while not self._is_up():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline_s, self.log()
            time.sleep(0.2)

    def _is_up(self) -> bool:
        try:
            if not self._token and not self._onboard():
                return False
            state: str = self.get("/api/config")["state"]
        except (httpx.HTTPError, ValueError, LookupError):
            return False
        return state == "RUNNING"

    def _onboard(self) -> bool:
        client = {"client_id": self.url + "/"}
        owner = {"name": "Owner", "username": "owner", "password": "owner", "language": "en"}
        answer = self._http.post("/api/onboarding/users", json={**client, **owner})
        if answer.status_code != httpx.codes.OK:
            return False
        grant = {"grant_type": "authorization_code", "code": answer.json()["auth_code"]}
        first = self._http.post("/auth/token", data={**client, **grant}).json()["access_token"]
        self._token = first
        lasting = {"type": "auth/long_lived_access_token", "client_name": "test", "lifespan": 365}
        self._token = self.ask(lasting)
        return True

    def stop(self) -> None:
        """End it in order."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def log(self) -> str:
        """What it logged since its last start."""
        path = self.folder / "home-assistant.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    # asking

    def get(self, path: str) -> Any:  # noqa: ANN401  # JSON
        """GET of its REST API."""
        return self._http.get(path, headers=self._bearer).raise_for_status().json()

    def post(self, path: str, body: object) -> Any:  # noqa: ANN401  # JSON
        """POST to its REST API."""
        return self._http.post(path, json=body, headers=self._bearer).raise_for_status().json()

    @property
    def _bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    def call(self, action: str, **data: object) -> None:
        """Perform an action, like `button.press`."""
        self.post(f"/api/services/{action.replace('.', '/')}", data)

    def render(self, template: str) -> str:
        """What a template shows."""
        body = {"template": template}
        answer = self._http.post("/api/template", json=body, headers=self._bearer)
        return answer.raise_for_status().text

    def state(self, entity: str) -> str | None:
        """The state of an entity; None when there is none."""
        answer = self._http.get(f"/api/states/{entity}", headers=self._bearer)
        return answer.json()["state"] if answer.status_code == httpx.codes.OK else None

    def attributes(self, entity: str) -> dict[str, Any]:
        """The attributes of an entity."""
        attributes: dict[str, Any] = self.get(f"/api/states/{entity}")["attributes"]
        return attributes

    def waits_for(self, entity: str, state: str | None, seconds: float = 20.0) -> None:
        """Wait until the entity has the state."""
        deadline_s = time.monotonic() + seconds
        while (now := self.state(entity)) != state:
            assert time.monotonic() < deadline_s, f"{entity} is {now}, not {state}"
            time.sleep(0.05)

    @contextlib.contextmanager
    def open(self) -> Iterator[ClientConnection]:
        """An authenticated websocket."""
        url = self.url.replace("http", "ws", 1) + "/api/websocket"
        with connect(url, max_size=2**24) as socket:
            socket.recv()
            socket.send(json.dumps({"type": "auth", "access_token": self._token}))
            assert json.loads(socket.recv())["type"] == "auth_ok"
            yield socket

    def ask(self, command: dict[str, Any]) -> Any:  # noqa: ANN401  # JSON
        """One websocket command: its result."""
        with self.open() as socket:
            socket.send(json.dumps({"id": 1, **command}))
            answer = json.loads(socket.recv(30))
        assert answer["success"], answer
        return answer["result"]

    # MQTT

    def add_mqtt(self, port: int) -> None:
        """Set up the MQTT integration as a person does: through its form."""
        flow = "/api/config/config_entries/flow"
        step = self.post(flow, {"handler": "mqtt"})
        for _ in range(4):
            if step["type"] == "create_entry":
                return
            answer: dict[str, object] = {"next_step_id": "broker"}
            if step["type"] == "form":
                assert not step["errors"], step
                answer = {**_defaults(step["data_schema"]), "broker": "127.0.0.1", "port": port}
            step = self.post(f"{flow}/{step['flow_id']}", answer)
        raise AssertionError(step)

    def device(self, identifier: str) -> dict[str, Any] | None:
        """The device with an MQTT identifier."""
        devices = self.ask({"type": "config/device_registry/list"})
        found = (d for d in devices if ["mqtt", identifier] in d["identifiers"])
        return next(found, None)

    def entities(self, device_id: str) -> list[dict[str, Any]]:
        """The registry's rows of a device, disabled ones too."""
        rows = self.ask({"type": "config/entity_registry/list"})
        return [row for row in rows if row["device_id"] == device_id]

    def notifications(self) -> dict[str, str]:
        """Title -> message of what is shown to people now."""
        shown = self.ask({"type": "persistent_notification/get"})
        return {one["title"]: one["message"] for one in shown}


def _defaults(schema: list[dict[str, Any]]) -> dict[str, Any]:
    """What a form suggests, or has as its first choice, for the fields that must be filled."""
    found: dict[str, Any] = {}
    for field in schema:
        name, selector = field["name"], field.get("selector", {})
        if "schema" in field:
            found[name] = _defaults(field["schema"])
        elif field.get("required") and "default" in field:
            found[name] = field["default"]
        elif field.get("required") and "boolean" in selector:
            found[name] = False
        elif field.get("required") and "select" in selector:
            first = selector["select"]["options"][0]
            found[name] = first["value"] if isinstance(first, dict) else first
    return found


def _without_resolver(folder: Path) -> list[str]:
    """A mount namespace whose resolver knows nothing, so that no host elsewhere is asked."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return []
    resolver = folder / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\n", encoding="ascii")
    script = f"mount --bind '{resolver}' /etc/resolv.conf; exec \"$@\""
    return ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "hass"]
