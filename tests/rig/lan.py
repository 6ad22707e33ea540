"""Two hosts on a wire: network namespaces of this machine, where no other address is reached."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

T = TypeVar("T")

_CLONE_NEWUTS: Final = 0x04000000
_CLONE_NEWNET: Final = 0x40000000
_PATIENCE_S: Final = 30.0


def ip(*args: str) -> None:
    """Run iproute2's `ip`; fail with what it says."""
    done = subprocess.run(["ip", *args], capture_output=True, text=True, timeout=10, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(args)}: {done.stderr.strip()}")


class Host:
    """Namespaces with an event loop: what runs there sees its own interfaces and host name."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._loop = asyncio.new_event_loop()
        self._open = contextlib.AsyncExitStack()
        self._is_inside = threading.Event()
        self._trouble: OSError | None = None
        self._thread = threading.Thread(target=self._live, name=namespace)
        self._thread.start()
        self._is_inside.wait(_PATIENCE_S)
        if self._trouble is not None:
            raise self._trouble

    def _live(self) -> None:
        """Only this thread moves over, and the sockets that it opens."""
        try:
            with Path(f"/run/netns/{self.namespace}").open("rb") as file:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(file.fileno(), _CLONE_NEWNET) or libc.unshare(_CLONE_NEWUTS):
                    raise OSError(ctypes.get_errno(), "setns, unshare")  # noqa: TRY301
            socket.sethostname(self.namespace)
        except OSError as error:
            self._trouble = error
        self._is_inside.set()
        if self._trouble is None:
            self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for what is done on this host."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    def open(self, manager: contextlib.AbstractAsyncContextManager[T]) -> T:
        """Enter what closes with this host, if not earlier."""
        return self.run(self._open.enter_async_context(manager))

    def ip(self, *args: str) -> None:
        """`ip` on this host."""
        ip("-n", self.namespace, *args)

    def leave(self) -> None:
        """Close what was opened there."""
        self.run(self._open.aclose())

    def close(self) -> None:
        """End the loop; what is still open there closes first."""
        self.leave()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        self._loop.close()


@contextlib.contextmanager
def _namespace() -> Iterator[Host]:
    name = f"cl-{uuid.uuid4().hex[:8]}"
    ip("netns", "add", name)
    try:
        host = Host(name)
        try:
            host.ip("link", "set", "lo", "up")
            yield host
        finally:
            host.close()
    finally:
        ip("netns", "delete", name)


def _may_make_namespaces() -> str:
    """Why not, or nothing."""
    if os.geteuid() != 0:
        return "needs root to make network namespaces"
    if shutil.which("ip") is None:
        return "needs iproute2 to make network namespaces"
    name = f"cl-{uuid.uuid4().hex[:8]}"
    try:
        ip("netns", "add", name)
        ip("netns", "delete", name)
    except OSError as error:
        return f"may not make network namespaces: {error}"
    return ""


@pytest.fixture
def make_lan() -> Iterator[Callable[[], tuple[Host, Host]]]:
    """Two hosts with a cable `lan` between them that is plugged in, without addresses."""
    if reason := _may_make_namespaces():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:

        def make() -> tuple[Host, Host]:
            one, other = stack.enter_context(_namespace()), stack.enter_context(_namespace())
            peer = ("peer", "name", "lan", "netns", other.namespace)
            one.ip("link", "add", "lan", "type", "veth", *peer)
            for host in (one, other):
                host.ip("link", "set", "lan", "up")
            return one, other

        yield make
