"""What real servers answered, served again: a capture and its expectation -> a stub's scenario."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from clusterllm_mqtt.models import Config

if TYPE_CHECKING:
    from rig.replies import Reply
    from rig.stub import StubEndpoint

FOLDER: Final = Path(__file__).parents[1] / "data" / "captures"
TABLE: Final = FOLDER / "expected.json"
_AGAIN: Final = ("/version", "/v1-openai/models")
"""What a capture of the same server may lend to one that did not ask it again."""


@dataclass(frozen=True)
class Capture:
    """A server as it was, and what it is to be taken for.

    `expect` has no endpoint. Requests without the `key` get what the server told those without.
    """

    name: str
    scenario: dict[str, Any]
    key: str
    prefix: str
    expect: dict[str, Any]
    reason: str | None
    is_identified: bool

    def config_for(self, stub: StubEndpoint) -> Config:
        """The configuration that points to the stub."""
        return Config(stub.url + self.prefix, api_key=self.key)


def load_captures() -> list[Capture]:
    """Every capture that has something to serve."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))["served"]
    return [_capture(name, entry) for name, entry in table.items()]


def _capture(name: str, entry: dict[str, Any]) -> Capture:
    return Capture(
        name=name,
        scenario=_scenario(name, entry),
        key=entry.get("key", ""),
        prefix=entry.get("prefix", ""),
        expect=entry["info"],
        reason=entry["reason"],
        is_identified=entry.get("identified", True),
    )


def _scenario(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    if "accept" in entry:
        return {"accept": entry["accept"]}
    routes = load_routes(name)
    if "also" in entry:
        routes |= {path: load_routes(entry["also"])[path] for path in _AGAIN}
    if "unkeyed" not in entry:
        return {"routes": routes}
    without = load_routes(entry["unkeyed"])
    return {
        "routes": {
            target: _route(routes, target)
            | {"require_bearer": entry["key"], "otherwise": _route(without, target)}
            for target in without | routes
        }
    }


def _route(routes: dict[str, Reply], target: str) -> Reply:
    """What is answered; a query that was not captured changes nothing."""
    return routes.get(target) or routes.get(target.split("?", 1)[0]) or {"status": 404}


def load_routes(name: str) -> dict[str, Reply]:
    """Path -> reply; a first page is the same whether it is numbered or not."""
    capture = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    routes = {target: _reply(answer) for target, answer in capture["responses"].items()}
    firsts = {f"{t}&page=1": reply for t, reply in routes.items() if t.endswith("?perPage=100")}
    return firsts | routes


def _reply(answer: dict[str, Any]) -> Reply:
    body = answer["body"]
    headers = {"Server": answer["server"], "Location": answer.get("location")}
    text = body if isinstance(body, str) else json.dumps(body)
    return {"status": answer["status"], "headers": headers, "body": text}
