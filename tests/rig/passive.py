"""What a detector may do to an endpoint: the check of recorded requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rig.stub import Request

ALIAS: Final = "/v1-openai/models"
LLAMACPP: Final = ("/health", "/props", "/v1/models", "/models")
GPUSTACK: Final = (
    "/version",
    "/v1/version",
    "/v1/gpu-devices",
    "/v2/gpu-devices",
    "/v1/workers",
    "/v2/workers",
)
PASSIVE: Final = (ALIAS, *LLAMACPP, *GPUSTACK)


def offences(
    requests: Iterable[Request],
    *,
    key: str = "",
    extra: Mapping[tuple[str, str], bool] | None = None,
) -> list[str]:
    """What was wrong with the requests; empty when they were passive and kept the key.

    `extra` names further (server, path)s that a redirect may lead to, and whether the key may.
    """
    extra = extra or {}
    found = []
    for request in requests:
        where = request.server, request.path
        said = f"{request.method} {request.server} {request.target}"
        if request.method != "GET" or request.body:
            found.append(f"not a bare GET: {said}")
        is_known = request.server == "endpoint" and request.path.endswith(PASSIVE)
        if not is_known and where not in extra:
            found.append(f"outside the passive set: {said}")
        if "model=" in request.target or "reload=" in request.target:
            found.append(f"loads or unloads a model: {said}")
        if request.authorization is not None and not (key and request.server == "endpoint"):
            found.append(f"the key went astray: {said}")
        if key and key in request.target:
            found.append(f"the key is in a URL: {said}")
    return found
