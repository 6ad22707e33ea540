# ruff: noqa: INP001  # a program in an image, no package
"""Runs a command of ours in a container; stays after an end that no new start mends.

Docker cannot tell exit codes apart: it restarts after all of them, or after none once the host was
restarted. So a process whose token is revoked, whose name another has, or whose configuration is of
no use says so and waits, unhealthy, until somebody stops it.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

from clusterllm_mqtt.cli.main import main

FINAL_CODES: Final = frozenset({2, 4, 5})
ENDED: Final = Path(tempfile.gettempdir(), "clusterllm-mqtt-ended")
"""There while we wait; the health check looks for it, since another may be online in our name."""
_STOPS: Final = frozenset({signal.SIGTERM, signal.SIGINT})


def run(argv: list[str]) -> int:
    """The exit code, at once or after somebody stopped us."""
    ENDED.unlink(missing_ok=True)
    try:
        code = main(argv)
    except SystemExit as error:  # argparse's way out
        code = error.code if isinstance(error.code, int) else 2
    if code in FINAL_CODES:
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        ENDED.touch()
        text = "a new start would not mend that: waiting to be stopped"
        print(f"clusterllm-mqtt: exit code {code}; {text}", file=sys.stderr, flush=True)  # noqa: T201
        signal.sigwait(_STOPS)
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
