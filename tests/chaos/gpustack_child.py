"""A GPUStack that replays a capture, as a process; its argument is the port."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rig.captures import load_captures
from rig.stub import StubEndpoint

NAME = "gpustack-2.3.0-adminkey"
CAPTURE = next(capture for capture in load_captures() if capture.name == NAME)


async def serve(port: int) -> None:
    """Until it is killed."""
    async with StubEndpoint(CAPTURE.scenario, port=port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
