"""The one call of the Supervisor's API that an app of ours makes, answered on loopback."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN: Final = "supervisor-token-4711"  # noqa: S105
PASSWORD: Final = 'pass "word" # 🔑 \\n'  # noqa: S105  # what YAML could stumble over


class FakeSupervisor(http.server.ThreadingHTTPServer):
    """Answers like Supervisor 2026.08; `service` is what the broker's app told, if it runs."""

    daemon_threads = True

    def __init__(self, service: dict[str, Any] | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.service = service
        self.broken: tuple[int, bytes] | None = None
        self.asked = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, path: str, authorization: str | None) -> tuple[int, bytes]:
        """Status and body."""
        self.asked += 1
        if self.broken is not None:
            return self.broken
        if authorization != f"Bearer {TOKEN}":
            return _error(401, "unauthorized")
        if path != "/services/mqtt":
            return _error(404, "Service does not exist")
        if self.service is None:
            return _error(400, "Service not enabled")
        return 200, json.dumps({"result": "ok", "data": self.service}).encode()


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:  # http.server's name
        """Answer."""
        assert isinstance(self.server, FakeSupervisor)
        status, body = self.server.answer(self.path, self.headers.get("Authorization"))
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _error(status: int, message: str) -> tuple[int, bytes]:
    return status, json.dumps({"result": "error", "message": message}).encode()


def mqtt_service(port: int) -> dict[str, Any]:
    """What the Mosquitto app tells of itself."""
    return {
        "addon": "core_mosquitto",
        "host": "127.0.0.1",
        "port": port,
        "ssl": False,
        "protocol": "3.1.1",
        "username": "addons",
        "password": PASSWORD,
    }


@contextlib.contextmanager
def supervising(service: dict[str, Any] | None) -> Iterator[FakeSupervisor]:
    """A Supervisor for as long as it is needed."""
    with FakeSupervisor(service) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
