"""docker-compose.yml's services without Docker: their files, mounts, users and command lines.

Each runs in a mount namespace whose root is this machine's, read-only where the file says so, below
what its image and its volumes bring. All share one network namespace with nothing but loopback.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import yaml

ROOT: Final = Path(__file__).parents[2]
OURS: Final = {
    "docker/entry.py": "/usr/local/lib/clusterllm-mqtt/entry.py",
    "docker/health.py": "/usr/local/lib/clusterllm-mqtt/health.py",
    "docker/clusterllm.yaml": "/etc/clusterllm-mqtt/clusterllm.yaml",
}
"""What the Dockerfile copies, beside the package itself."""

_VARIABLE: Final = re.compile(r"\$(?:\$|\{(\w+)(?:(:-|:\?)([^}]*))?\})")
_ENTER: Final = """
set -eu
root=$1; user=$2; read_only=$3; mounts=$4; shift 4
mount -t tmpfs tmpfs "$root"
mkdir "$root/upper" "$root/work" "$root/merged"
mount -t overlay overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" "$root/merged"
cd "$root/merged"
mount -t tmpfs -o mode=1777,size=16m tmpfs tmp
mount --rbind /proc proc
mount --rbind /dev dev
printf '127.0.0.1 localhost mosquitto host.docker.internal\\n' > etc/hosts
printf '%s\\n' "$mounts" | while IFS='|' read -r source target options; do
  if [ -d "$source" ]; then mkdir -p ".$target"
  elif [ ! -e ".$target" ]; then mkdir -p ".$(dirname "$target")"; touch ".$target"; fi
  mount --bind "$source" ".$target"
  if [ "$options" = ro ]; then mount -o remount,bind,ro ".$target"; fi
done
if [ "$read_only" = yes ]; then mount -o remount,ro .; fi
exec chroot . setpriv --reuid "$user" --regid "$user" --clear-groups \\
  --inh-caps=-all --bounding-set=-all --no-new-privs -- "$@"
"""


def interpolated(text: str, env: dict[str, str]) -> str:
    """Compose's `${NAME}`, `${NAME:-default}`, `${NAME:?error}` and `$$`.

    Raises:
        KeyError: a variable is missing that has to be there, with what the file says then.
    """

    def value(match: re.Match[str]) -> str:
        name, how, rest = match.groups()
        if name is None:
            return "$"
        if env.get(name):
            return env[name]
        if how == ":?":
            raise KeyError(rest)
        return rest or ""

    return _VARIABLE.sub(value, text)


def compose(env: dict[str, str]) -> dict[str, Any]:
    """The file, as Docker Compose reads it with a `.env` of this content."""

    def walked(part: object) -> object:
        if isinstance(part, dict):
            return {key: walked(inner) for key, inner in part.items()}
        if isinstance(part, list):
            return [walked(inner) for inner in part]
        return interpolated(part, env) if isinstance(part, str) else part

    text = ROOT.joinpath("docker-compose.yml").read_text(encoding="utf-8")
    read = walked(yaml.safe_load(text))
    assert isinstance(read, dict)
    return read


def _image_user() -> str:
    """The image's user, where this machine's Python can be read by everybody, else root."""
    folders = [Path(sys.base_prefix), *Path(sys.base_prefix).parents, ROOT, *ROOT.parents]
    return "10001" if all(f.stat().st_mode & 0o001 for f in folders) else "0"


@dataclass
class Lab:
    """A Docker host that has no Docker."""

    folder: Path
    env: dict[str, str]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _network: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._network = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 600"],
            stdout=subprocess.PIPE,
        )
        assert self._network.stdout is not None
        assert self._network.stdout.readline() == b"up\n"
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.running.values(), self._network]:
            assert process is not None
            process.kill()
            process.wait()
        assert self._network is not None
        assert self._network.stdout is not None
        self._network.stdout.close()

    def start(self, name: str) -> None:
        """Start a service; its log is added to."""
        service = self._service(name)
        argv = [*service.get("entrypoint", _entrypoint()), *service["command"]]
        with self._log(name).open("ab") as log:
            self.running[name] = subprocess.Popen(
                self._inside(name, argv), env=self._environ(service), stdout=log, stderr=log
            )

    def log(self, name: str) -> str:
        """What it has said."""
        return self._log(name).read_text(encoding="utf-8")

    def stop(self, name: str) -> int:
        """As Docker stops it; its exit code."""
        process = self.running.pop(name)
        process.terminate()
        return process.wait(10)

    def is_healthy(self, name: str) -> bool:
        """Run its health check once, in its container."""
        service = self._service(name)
        kind, *argv = service["healthcheck"]["test"]
        if kind == "CMD-SHELL":
            argv = ["/bin/sh", "-c", *argv]
        pid = self.running[name].pid
        entered = ["nsenter", "--target", str(pid), "--mount", "--net", "--root", "--wd=/"]
        checked = subprocess.run(
            [*entered, "setpriv", "--reuid", self._user(service), *argv],
            env=self._environ(service), capture_output=True, timeout=20, check=False,
        )  # fmt: skip
        return checked.returncode == 0

    def mqtt(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a client of Mosquitto on this host."""
        return self.on_host(argv[0], "-h", "127.0.0.1", *argv[1:])

    def on_host(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run something to its end beside the containers."""
        assert self._network is not None
        command = ["nsenter", "--target", str(self._network.pid), "--net", *argv]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    def _service(self, name: str) -> dict[str, Any]:
        service = compose(self.env)["services"][name]
        assert isinstance(service, dict)
        return service

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _user(self, service: dict[str, Any]) -> str:
        return str(service.get("user", _image_user())).partition(":")[0]

    def _environ(self, service: dict[str, Any]) -> dict[str, str]:
        told = service["environment"]
        passed = {
            key: self.env.get(key) if value is None else str(value) for key, value in told.items()
        }
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        return {"PATH": path, **{key: value for key, value in passed.items() if value is not None}}

    def _inside(self, name: str, argv: list[str]) -> list[str]:
        service = self._service(name)
        root = self.folder / f"{name}-root"
        root.mkdir(exist_ok=True)
        user = self._user(service)
        read_only = "yes" if service.get("read_only") else "no"
        mounts = "\n".join("|".join(mount) for mount in self._mounts(service, user))
        assert self._network is not None
        entered = ["nsenter", "--target", str(self._network.pid), "--net"]
        return [
            *entered,
            "unshare",
            "--mount",
            "sh",
            "-c",
            _ENTER,
            "sh",
            str(root),
            user,
            read_only,
            mounts,
            *argv,
        ]

    def _mounts(self, service: dict[str, Any], user: str) -> list[tuple[str, str, str]]:
        python = [str(path) for path in (ROOT, Path(sys.prefix), Path(sys.base_prefix))]
        mounts = [(path, path, "ro") for path in dict.fromkeys(python)]
        if "build" in service:
            mounts += [(str(ROOT / source), target, "ro") for source, target in OURS.items()]
        for volume in service["volumes"]:
            source, target, *options = volume.split(":")
            if not source.startswith("."):  # a volume by name
                named = self.folder / f"volume-{source}"
                named.mkdir(exist_ok=True)
                os.chown(named, int(user), int(user))
                source = str(named)
            mounts.append((str(ROOT / source), target, "".join(options)))
        return mounts


def _entrypoint() -> list[str]:
    """That of our image."""
    text = ROOT.joinpath("Dockerfile").read_text(encoding="utf-8")
    found = re.search(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE)
    assert found is not None
    argv: list[str] = yaml.safe_load(found[1])
    return argv
