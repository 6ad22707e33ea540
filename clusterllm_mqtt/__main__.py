"""`python -m clusterllm_mqtt`, and the console script."""

from __future__ import annotations

import sys

from clusterllm_mqtt.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
