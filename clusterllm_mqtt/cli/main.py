"""The commands and their options; a command's code is imported only when it runs."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clusterllm_mqtt._version import __version__
from clusterllm_mqtt.errors import ClusterLLMError

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"
_CHATTY: Final = ("httpx", "httpcore", "zeroconf", "asyncio")

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001  # has no other


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    args = _parser().parse_args(argv)
    set_up_logging(logging.DEBUG if args.debug else logging.INFO)
    module_name, _, function_name = args.run.partition(":")
    run = getattr(importlib.import_module(f"clusterllm_mqtt.cli.{module_name}"), function_name)
    try:
        code: int = run(args)
    except ClusterLLMError as error:
        if args.debug:
            raise
        print(f"clusterllm-mqtt: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 0
    return code


def set_up_logging(level: int) -> None:
    """Lines go to standard error; one that cannot be written ends nothing."""
    logging.raiseExceptions = False
    logging.basicConfig(level=level, format=_LOG_FORMAT, stream=sys.stderr)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="clusterllm-mqtt",
        description="Shows a home's big language model to Home Assistant over MQTT.",
    )
    parser.add_argument("--version", action="version", version=f"clusterllm-mqtt {__version__}")
    parser.add_argument("--debug", action="store_true", help="log everything; show tracebacks")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_bridge(commands)
    _add_probe(commands)
    _add_browse(commands)
    _add_advertise(commands)
    _add_status(commands)
    _add_clear(commands)
    _add_config(commands)
    _add_schema(commands)
    return parser


def _add(commands: Commands, name: str, run: str, text: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.")
    parser.set_defaults(run=run)
    return parser


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="configuration file (YAML)"
    )


def _add_bridge(commands: Commands) -> None:
    text = "browse, probe and publish until stopped"
    parser = _add(commands, "bridge", "bridge:run", text)
    _add_file(parser)


def _add_probe(commands: Commands) -> None:
    parser = _add(commands, "probe", "look:probe", "look at one endpoint; exit code 0 if it runs")
    parser.add_argument("url", metavar="URL", help="base URL, like http://192.168.1.10:8080")
    parser.add_argument("--key-file", type=Path, metavar="FILE", help="file with the API key")
    parser.add_argument("--backend", default="", help="llamacpp: ask llama.cpp's paths only")
    parser.add_argument("--ca-file", default="", metavar="FILE", help="CA of an https endpoint")
    parser.add_argument("--json", action="store_true", help="print the Info record")


def _add_browse(commands: Commands) -> None:
    text = "show what mDNS names, and why something is ignored"
    parser = _add(commands, "browse", "look:browse", text)
    _add_file(parser)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long (default: 5)")
    _add_interfaces(parser)


def _add_interfaces(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--interface",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="address of this host to use; repeat for more (default: all)",
    )


def _add_advertise(commands: Commands) -> None:
    text = "announce a server that cannot do so itself, until stopped"
    parser = _add(commands, "advertise", "advertise:run", text)
    parser.add_argument("--port", type=int, required=True, help="port of the server")
    parser.add_argument("--name", default="", help="what people read (default: host and backend)")
    parser.add_argument(
        "--backend", choices=("llamacpp", "gpustack"), default="llamacpp", help="what it is"
    )
    parser.add_argument(
        "--type", default="", metavar="TYPE", help="service type (default: its own)"
    )
    parser.add_argument("--path", default="", help="prefix in front of all paths")
    parser.add_argument("--proto", choices=("http", "https"), default="http", help="how to ask it")
    parser.add_argument("--model", default="", help="name of the model, as a hint")
    _add_interfaces(parser)


def _add_status(commands: Commands) -> None:
    text = "show what the broker holds; exit code 1 if something is down"
    parser = _add(commands, "status", "retained:status", text)
    _add_file(parser)
    parser.add_argument("--json", action="store_true", help="print the records as JSON")


def _add_clear(commands: Commands) -> None:
    text = "remove this bridge's retained topics, and its devices from Home Assistant"
    parser = _add(commands, "clear", "retained:clear", text)
    _add_file(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--force", action="store_true", help="even while the bridge is online")


def _add_config(commands: Commands) -> None:
    parser = commands.add_parser("config", help="check a configuration", description="Check.")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    check = _add(actions, "check", "settings:check", "check it, and show what is in force")
    _add_file(check)


def _add_schema(commands: Commands) -> None:
    parser = _add(commands, "schema", "settings:schema", "print a JSON Schema")
    parser.add_argument(
        "what", nargs="?", choices=("config", "info"), default="config", help="of what"
    )
    parser.add_argument(
        "--markdown", action="store_true", help="the configuration as a page for people"
    )
