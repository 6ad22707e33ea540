"""A small registry on loopback that keeps the contract of `/api/v1/llm/registry`.

`python -m clusterllm_mqtt.demo.receiver --token-file FILE` runs it as a process. With a journal it
comes back with what it held, however it ended.
"""

from __future__ import annotations

import argparse
import hmac
import json
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from clusterllm_mqtt.demo.push_record import Push, read_push
from clusterllm_mqtt.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Callable

HOST: Final = "127.0.0.1"
PATH: Final = "/api/v1/llm/registry"
MAX_BODY: Final = 2**20
MAX_HISTORY: Final = 10_000
SOCKET_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Agent:
    """What is held of one agent; `changes` counts the pushes that replaced something."""

    payload: dict[str, Any]
    content_hash: str
    last_seen: datetime
    pushes: int = 1
    changes: int = 1


@dataclass(frozen=True, slots=True)
class Received:
    """One accepted push."""

    at: datetime
    payload: dict[str, Any]


class Receiver:
    """Listens while it is open, as a context manager; `agents` and `history` are what it holds.

    `port` 0 takes a free one. The journal has a line of JSON for each accepted push.
    """

    def __init__(self, token: str, *, port: int = 0, journal: Path | None = None) -> None:
        self._token = token.encode()
        self._journal = journal
        self._changed = threading.Condition()
        self._agents: dict[str, Agent] = {}
        self._history: deque[Received] = deque(maxlen=MAX_HISTORY)
        self._replay()
        self._server = _Server((HOST, port), _Handler)
        self._server.receiver = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Its base URL, as `outpost.cloudbox_url` takes it."""
        return f"http://{HOST}:{self.port}"

    @property
    def agents(self) -> dict[str, Agent]:
        """What is held now, by agent name."""
        with self._changed:
            return dict(self._agents)

    @property
    def history(self) -> tuple[Received, ...]:
        """The last accepted pushes, oldest first."""
        with self._changed:
            return tuple(self._history)

    def wait(self, check: Callable[[dict[str, Agent]], bool], timeout_s: float) -> bool:
        """Wait until what is held passes the check."""
        with self._changed:
            return self._changed.wait_for(lambda: check(dict(self._agents)), timeout_s)

    def accepts(self, authorization: str) -> bool:
        """Whether the bearer is ours, compared in constant time."""
        return hmac.compare_digest(authorization.encode(), b"Bearer " + self._token)

    def take(self, push: Push) -> bool:
        """Replace what is held of the agent; False when the hash says that nothing changed."""
        now = datetime.now(UTC)
        with self._changed:
            is_news = self._hold(push, now)
            if self._journal is not None:
                line = json.dumps({"received_at": now.isoformat(), "payload": push.payload})
                with self._journal.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
            self._changed.notify_all()
        return is_news

    def _hold(self, push: Push, now: datetime) -> bool:
        held = self._agents.get(push.agent_name)
        is_news = held is None or held.content_hash != push.content_hash
        fresh = Agent(push.payload, push.content_hash, now)
        if held is not None:
            changes = held.changes + is_news
            fresh = replace(fresh, pushes=held.pushes + 1, changes=changes)
        self._agents[push.agent_name] = fresh
        self._history.append(Received(now, push.payload))
        return is_news

    def _replay(self) -> None:
        """What an earlier life accepted; a line that was torn by its end is left out."""
        if self._journal is None or not self._journal.exists():
            return
        kept = []
        for line in self._journal.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
                push = read_push(json.dumps(record["payload"]).encode())
                self._hold(push, datetime.fromisoformat(record["received_at"]))
            except (ValueError, LookupError, TypeError, RecordError):
                continue
            kept.append(line + "\n")
        self._journal.write_text("".join(kept), encoding="utf-8")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    receiver: Receiver

    def handle_error(self, *_: object) -> None:
        """A client that breaks off is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = SOCKET_TIMEOUT_S

    def do_POST(self) -> None:
        """Take a push."""
        self._answer(*self._posted())

    def do_GET(self) -> None:
        """List what is held."""
        self._answer(*self._listed())

    def _posted(self) -> tuple[HTTPStatus, dict[str, Any]]:
        body = self._body()
        if not isinstance(body, bytes):
            return body, {"error": body.phrase}
        if refused := self._refusal():
            return refused, {"error": refused.phrase}
        if self.headers.get_content_type() != "application/json":
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, {"error": "send application/json"}
        try:
            is_news = self.server.receiver.take(read_push(body))
        except RecordError as error:
            return HTTPStatus.BAD_REQUEST, {"error": str(error)}
        return HTTPStatus.OK, {"status": "replaced" if is_news else "unchanged"}

    def _listed(self) -> tuple[HTTPStatus, dict[str, Any]]:
        if refused := self._refusal():
            return refused, {"error": refused.phrase}
        agents = {
            name: {
                "last_seen": agent.last_seen.isoformat(),
                "pushes": agent.pushes,
                "changes": agent.changes,
                "payload": agent.payload,
            }
            for name, agent in self.server.receiver.agents.items()
        }
        return HTTPStatus.OK, {"agents": agents}

    def _refusal(self) -> HTTPStatus | None:
        if self.path != PATH:
            return HTTPStatus.NOT_FOUND
        if not self.server.receiver.accepts(self.headers.get("Authorization", "")):
            return HTTPStatus.UNAUTHORIZED
        return None

    def _body(self) -> bytes | HTTPStatus:
        """The whole body within the socket's timeout, or why not."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            return HTTPStatus.LENGTH_REQUIRED
        if int(length[:20]) > MAX_BODY:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        ends_s = time.monotonic() + SOCKET_TIMEOUT_S
        body = bytearray()
        while len(body) < int(length) and time.monotonic() < ends_s:
            piece = self.rfile.read1(int(length) - len(body))
            if not piece:
                break
            body += piece
        return bytes(body) if len(body) == int(length) else HTTPStatus.REQUEST_TIMEOUT

    def _answer(self, status: HTTPStatus, record: dict[str, Any]) -> None:
        body = json.dumps(record).encode()
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Requests are no news."""


def main() -> None:
    """Run until somebody stops the process."""
    parser = argparse.ArgumentParser(description="A registry on loopback, for tests.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token-file", type=Path, required=True)
    parser.add_argument("--journal", type=Path)
    args = parser.parse_args()
    token = args.token_file.read_text(encoding="utf-8").strip()
    with Receiver(token, port=args.port, journal=args.journal) as receiver:
        print(receiver.url, flush=True)  # noqa: T201  # who started it reads this
        threading.Event().wait()


if __name__ == "__main__":
    main()
