"""A probe client that remembers what it sent, for servers that keep no record themselves."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from clusterllm_mqtt.http_client import new_client
from rig.stub import Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx


@dataclass
class Recorder:
    """`client` sends, `requests` are what it sent, in the stub's own form."""

    client: httpx.AsyncClient
    requests: list[Request] = field(default_factory=list)

    async def note(self, request: httpx.Request) -> None:
        """Remember a request."""
        target = request.url.raw_path.decode()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append(Request("endpoint", request.method, target, headers, request.content))

    @property
    def paths(self) -> list[str]:
        """What was asked, in order, without queries."""
        return [urlsplit(request.target).path for request in self.requests]


@asynccontextmanager
async def recording_client() -> AsyncIterator[Recorder]:
    """A client as the product makes it, with a witness."""
    async with new_client() as client:
        recorder = Recorder(client)
        client.event_hooks = {"request": [recorder.note], "response": []}
        yield recorder
