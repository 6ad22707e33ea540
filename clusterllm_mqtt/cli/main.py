"""Runs one command: its exit code, and a sentence instead of a traceback."""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

from clusterllm_mqtt.cli.arguments import build_parser
from clusterllm_mqtt.cli.streams import close_streams, open_streams, say, set_up_logging
from clusterllm_mqtt.errors import ClusterLLMError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_LOGGER = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    open_streams()
    try:
        args = build_parser().parse_args(argv)
        set_up_logging(logging.DEBUG if args.debug else args.log_level)
        return _run(args)
    finally:
        close_streams()


def _run(args: argparse.Namespace) -> int:
    """A command's code is imported only when it runs: `--help` has to be quick."""
    module_name, _, function_name = args.run.partition(":")
    run = getattr(importlib.import_module(f"clusterllm_mqtt.cli.{module_name}"), function_name)
    try:
        code: int = run(args)
        print(end="", flush=True)
    except ClusterLLMError as error:
        return _failed(error, str(error), error.exit_code)
    except BrokenPipeError:  # whoever read our output has seen enough
        return 1
    except OSError as error:
        return _failed(error, f"{error.filename or 'the output'}: {error.strerror or error}", 1)
    except KeyboardInterrupt:
        return 0
    return code


def _failed(error: Exception, sentence: str, exit_code: int) -> int:
    _LOGGER.debug("where it came from:", exc_info=error)
    say(f"clusterllm-mqtt: {sentence}")
    return exit_code
