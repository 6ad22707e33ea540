"""The model list of llama.cpp and of whoever speaks OpenAI's API: read once, and read again.

An endpoint may be configured with or without a trailing `/v1`; both ways lead to the list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from clusterllm_mqtt.drivers.base import Finding, Look, Trouble
from clusterllm_mqtt.drivers.model_list import Row, model_rows
from clusterllm_mqtt.endpoint_url import alternative_bases
from clusterllm_mqtt.models import Reason

LOADING: Final = Trouble(Reason.LOADING, "the model is being loaded")

Describe = Callable[[Finding, list[Row]], Finding]
"""Writes what a list says into a finding."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Where the list was read, and its rows."""

    url: str
    keyed: bool
    rows: list[Row]


def below(base: str, path: str) -> list[str]:
    """A path below the endpoint, and beside a `/v1` that people like to configure."""
    return [parent + path for parent in alternative_bases(base)]


async def read_list(look: Look) -> Listing | None:
    """The first list with a model in it, else the first list, else None."""
    path = "/models" if look.base.endswith("/v1") else "/v1/models"
    empty = None
    for url in below(look.base, path):
        rows, keyed = await look.read_openly(url, model_rows)
        if rows:
            return Listing(url, keyed, rows)
        if rows is not None:
            empty = empty or Listing(url, keyed, rows)
    return empty


def with_list(finding: Finding, listing: Listing, describe: Describe) -> Finding:
    """A finding that knows the list, and how to read it again with one GET."""
    known = describe(finding, listing.rows)
    return replace(known, again=partial(_again, listing=listing, known=finding, describe=describe))


async def _again(
    look: Look, *, listing: Listing, known: Finding, describe: Describe
) -> Finding | None:
    rows = await look.ask(listing.url, model_rows, keyed=listing.keyed)
    if rows is not None:
        return describe(known, rows)
    is_loading = any(trouble.reason is Reason.LOADING for trouble in look.troubles)
    return replace(known, trouble=LOADING) if is_loading else None
