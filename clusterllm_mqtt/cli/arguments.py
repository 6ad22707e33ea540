"""The commands and their options."""

from __future__ import annotations

import argparse
import ipaddress
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt._version import __version__

_BACKENDS: Final = ("llamacpp", "gpustack")
_EXIT_CODES: Final = (
    "Exit codes: 0 stopped, or all is well; 1 something is down, or failed; 2 usage or "
    "configuration; 3 no connection to the broker, or refused by it; 4 the registry no longer "
    "accepts the token; 5 another process has this bridge's or outpost's id."
)

if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001  # has no other


def build_parser() -> argparse.ArgumentParser:
    """Each command sets `run`, the module and function that do the work, and `log_level`."""
    top = argparse.ArgumentParser(
        prog="clusterllm-mqtt",
        description="Shows a home's big language model to Home Assistant over MQTT.",
        epilog=_EXIT_CODES,
    )
    top.add_argument("--version", action="version", version=f"clusterllm-mqtt {__version__}")
    _add_debug(top, default=False)
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_bridge(commands)
    _add_outpost(commands)
    _add_probe(commands)
    _add_browse(commands)
    _add_advertise(commands)
    _add_status(commands)
    _add_clear(commands)
    _add_config(commands)
    _add_schema(commands)
    return top


def _add(
    commands: _Commands, name: str, run: str, text: str, *, log_level: int = logging.WARNING
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.")
    parser.set_defaults(run=run, log_level=log_level)
    _add_debug(parser, default=argparse.SUPPRESS)
    return parser


def _add_debug(parser: argparse.ArgumentParser, *, default: object) -> None:
    """People write it before and behind the command."""
    text = "log everything; show tracebacks"
    parser.add_argument("--debug", action="store_true", default=default, help=text)


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="configuration file (YAML)"
    )


def _add_bridge(commands: _Commands) -> None:
    text = "browse, probe and publish until stopped"
    parser = _add(commands, "bridge", "bridge:run", text, log_level=logging.INFO)
    _add_file(parser)


def _add_outpost(commands: _Commands) -> None:
    text = "push what bridges retain to a registry until stopped"
    parser = _add(commands, "outpost", "outpost:run", text, log_level=logging.INFO)
    _add_file(parser)


def _add_probe(commands: _Commands) -> None:
    parser = _add(commands, "probe", "probe:run", "look at one endpoint; exit code 0 if it runs")
    parser.add_argument("url", metavar="URL", help="base URL, like http://192.168.1.10:8080")
    parser.add_argument("--key-file", type=Path, metavar="FILE", help="file with the API key")
    parser.add_argument(
        "--backend", choices=_BACKENDS, default="", help="llamacpp: ask llama.cpp's paths only"
    )
    parser.add_argument("--ca-file", default="", metavar="FILE", help="CA of an https endpoint")
    parser.add_argument("--json", action="store_true", help="print the Info record")


def _add_browse(commands: _Commands) -> None:
    text = "show what mDNS names, and why something is ignored"
    parser = _add(commands, "browse", "browse:run", text, log_level=logging.INFO)
    _add_file(parser)
    parser.add_argument("--seconds", type=_seconds, default=5.0, help="how long (default: 5)")
    _add_interfaces(parser)


def _add_interfaces(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--interface",
        action="append",
        type=_address,
        default=[],
        metavar="ADDRESS",
        help="address of this host to use; repeat for more (default: all)",
    )


def _add_advertise(commands: _Commands) -> None:
    text = "announce a server that cannot do so itself, until stopped"
    parser = _add(commands, "advertise", "advertise:run", text, log_level=logging.INFO)
    parser.add_argument("--port", type=_port, required=True, help="port of the server")
    parser.add_argument("--name", default="", help="what people read (default: host and backend)")
    parser.add_argument("--backend", choices=_BACKENDS, default="llamacpp", help="what it is")
    parser.add_argument(
        "--type", default="", metavar="TYPE", help="service type (default: its own)"
    )
    parser.add_argument("--path", default="", help="prefix in front of all paths")
    parser.add_argument("--proto", choices=("http", "https"), default="http", help="how to ask it")
    parser.add_argument("--model", default="", help="name of the model, as a hint")
    _add_interfaces(parser)


def _add_status(commands: _Commands) -> None:
    text = "show what the broker holds; exit code 1 if something is down"
    parser = _add(commands, "status", "status:run", text)
    _add_file(parser)
    parser.add_argument("--json", action="store_true", help="print the records as JSON")


def _add_clear(commands: _Commands) -> None:
    text = "remove this bridge's retained topics, and its devices from Home Assistant"
    parser = _add(commands, "clear", "clear:run", text)
    _add_file(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--force", action="store_true", help="even while it is online")
    parser.add_argument(
        "--outpost", action="store_true", help="remove the outpost's topics instead of the bridge's"
    )


def _add_config(commands: _Commands) -> None:
    parser = commands.add_parser("config", help="check a configuration", description="Check.")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    check = _add(actions, "check", "settings:check", "check it, and show what is in force")
    _add_file(check)


def _add_schema(commands: _Commands) -> None:
    parser = _add(commands, "schema", "settings:schema", "print a JSON Schema")
    parser.add_argument(
        "what", nargs="?", choices=("config", "info"), default="config", help="of what"
    )
    parser.add_argument(
        "--markdown", action="store_true", help="the configuration as a page for people"
    )


def _address(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no IPv4 address of this host") from None


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 2**16:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; use 1 to 65535")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return seconds
