"""A service record of an untrusted neighbour -> `Service`, or the reason why not; pure.

TXT is a hint: never identity, never trust, never a credential. Sizes and counts are capped, and
whatever is missing, doubled or not UTF-8 is tolerated (RFC 6763, section 6).
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt.defaults import PRIVATE_NETWORKS, Network
from clusterllm_mqtt.errors import RecordError
from clusterllm_mqtt.models import BACKEND_GPUSTACK, BACKEND_LLAMACPP, Service
from clusterllm_mqtt.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface

NEEDS_HINT: Final = frozenset({"_http._tcp", "_ollama._tcp"})
"""Types that name so much else that a TXT hint must name a backend of ours."""

MAX_TXT: Final = 1300
MAX_TXT_KEYS: Final = 32
_MAX_NAME: Final = 63
_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")
_API_VERSION: Final = re.compile(r"/v1(-openai)?$")
_ALIASES: Final = {
    "transport": "proto",
    "scheme": "proto",
    "type": "backend",
    "api_type": "backend",
    "api_path": "path",
    "models": "model",
}
_BACKENDS: Final = {
    "gpustack": BACKEND_GPUSTACK,
    "llamacpp": BACKEND_LLAMACPP,
    "llama.cpp": BACKEND_LLAMACPP,
    "llama-cpp": BACKEND_LLAMACPP,
    "llama_cpp": BACKEND_LLAMACPP,
}


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """The raw parts of a resolved service, as DNS-SD gives them.

    `instance` is the full name, `type` like `_llm._tcp`, `host` the SRV target; `addresses` may
    carry a `%scope`. `is_own` says that the record claims to be this host's.
    """

    instance: str
    type: str
    host: str
    port: int
    addresses: Sequence[str]
    txt: bytes
    is_own: bool = False


def service_from_record(
    record: ServiceRecord,
    *,
    allowed: Iterable[Network] = PRIVATE_NETWORKS,
    local: Iterable[Interface] = (),
    before: Service | None = None,
) -> Service:
    """Clean a record; the address that was chosen `before` stays while it is still named.

    `local` are the addresses of this host: see `usable_addresses`.

    Raises:
        RecordError: nothing that may be probed; the message says why.
    """
    hints = txt_hints(record.txt)
    backend = _BACKENDS.get(hints.get("backend", "").lower(), "")
    if record.type.lower() in NEEDS_HINT and not backend:
        raise RecordError(f"{record.type} without a TXT hint that names a backend")
    if not 0 < record.port < 2**16:
        raise RecordError(f"port {record.port}")
    proto = hints.get("proto", "http").lower()
    if proto not in ("http", "https"):
        raise RecordError(f"proto {clean(proto, 20)}")
    path = _API_VERSION.sub("", path_prefix(hints.get("path", "")))
    usable = usable_addresses(record.addresses, allowed=allowed, is_own=record.is_own, local=local)
    if not usable:
        raise RecordError("no address in the allowed networks")
    hosts = [_url_host(address) for address in usable]
    host = next((h for h in hosts if before and f"//{h}:" in before.url), hosts[0])
    label = record.instance.removesuffix(f".{record.type}.local.")
    return Service(
        instance=record.instance,
        name=clean(label, _MAX_NAME) or "unnamed",
        url=f"{proto}://{host}:{record.port}{path}",
        hosts=frozenset({*usable, record.host.lower().rstrip(".")}),
        backend=backend,
        txt=tuple(sorted(hints.items())),
    )


def usable_addresses(
    addresses: Iterable[str],
    *,
    allowed: Iterable[Network],
    is_own: bool,
    local: Iterable[Interface] = (),
) -> list[str]:
    """What may be connected to, best first.

    IPv4 before IPv6, others before link-local, a network that this host is in before others, and
    last what in a stranger's record is an address of this very host: every Docker host names the
    same 172.17.0.1.
    """
    networks, interfaces = tuple(allowed), tuple(local)
    ranked = []
    for text in addresses:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if _is_usable(address, networks, is_own=is_own):
            is_ours = not is_own and any(address == i.ip for i in interfaces)
            is_far = not any(address in i.network for i in interfaces)
            rank = address.version, address.is_link_local, is_ours, is_far, int(address)
            ranked.append((rank, text))
    return [text for _, text in sorted(ranked)]


def _is_usable(address: Address, networks: Iterable[Network], *, is_own: bool) -> bool:
    if address.is_multicast or address.is_unspecified or (address.is_loopback and not is_own):
        return False
    if isinstance(address, ipaddress.IPv6Address):
        lacks_zone = address.is_link_local and not address.scope_id
    else:
        lacks_zone = False
    return not lacks_zone and any(address in network for network in networks)


def _url_host(address: str) -> str:
    """RFC 6874: an IPv6 address goes into brackets, its zone behind an escaped percent sign."""
    return f"[{address.replace('%', '%25')}]" if ":" in address else address


def is_allowed_host(host: str, allowed: Iterable[Network]) -> bool:
    """Whether a remembered endpoint's host is still one that mDNS may lead us to."""
    return bool(usable_addresses([host], allowed=allowed, is_own=True))


def txt_hints(raw: bytes) -> dict[str, str]:
    """The keys that we know, by their documented names, which count before their aliases.

    Of doubled keys the first counts (RFC 6763, section 6.4).
    """
    pairs: dict[str, str] = {}
    for key, value in _txt_pairs(raw[:MAX_TXT]):
        pairs.setdefault(key, value)
    hints = {key: value for key, value in pairs.items() if key not in _ALIASES}
    for key, value in pairs.items():
        hints.setdefault(_ALIASES.get(key, key), value)
    return hints


def _txt_pairs(raw: bytes) -> list[tuple[str, str]]:
    """Key and value of each string; a string that is cut off ends the record."""
    pairs: list[tuple[str, str]] = []
    position = 0
    while position < len(raw) and len(pairs) < MAX_TXT_KEYS:
        length = raw[position]
        entry = raw[position + 1 : position + 1 + length]
        position += 1 + length
        if len(entry) < length:
            break
        key, _, value = entry.partition(b"=")
        name = key.decode("ascii", "replace").lower()
        if name.isprintable() and name and "\ufffd" not in name:
            pairs.append((name, clean(value.decode("utf-8", "replace"), 255)))
    return pairs


def path_prefix(text: str) -> str:
    """One absolute path as a prefix, "" for the root.

    Raises:
        RecordError: it is something else; dots, queries and escapes have no place there.
    """
    segments = text.split("/")
    if not _PATH.fullmatch(text) or "." in segments or ".." in segments:
        raise RecordError(f"path {clean(text, 60)!r}")
    return text.rstrip("/")
