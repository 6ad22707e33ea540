"""Installs a real Home Assistant on whatever machine this is: `python install.py FOLDER`.

Where a Python of at least 3.13 is at hand, the rig's installer does it. Where none is, or where
HOMEASSISTANT_SUITE names a newer Debian (forky, trixie), that Debian is unpacked into the folder
and lends its Python; this needs root, apt-get and unshare, on a Debian. Either way FOLDER/bin/hass
starts it, and a second run finds FOLDER/.installed and takes no time. Prints the release.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from rig import homeassistant_install as rig


@dataclass(frozen=True)
class Suite:
    """A Debian, its Python, and the newest release of Home Assistant that this Python runs."""

    name: str
    python: str
    release: str


SUITES: Final = {
    suite.name: suite
    for suite in (
        Suite("forky", "python3.14", "2026.11.0"),
        Suite("trixie", "python3.13", "2026.2.3"),
    )
}
_NEWEST: Final = "forky"
# Two voice packages that the frontend of 2026.x cannot do without have no wheel for 3.14.
_COMPILER: Final = "g++"
_VENV: Final = "/opt/homeassistant"
_CANNOT: Final = """\
There is no Python 3.13 or newer here, which Home Assistant needs, and a newer Debian that has one
cannot be unpacked: {why}. Put a python3.13 or python3.14 on the path, or run this as root on a
Debian that has apt-get and unshare."""

# What of the machine it shares: its devices, and the configuration folder under its own name.
# The shell gives way to hass, so that who started this can end it by its pid.
_HASS: Final = """\
#!/bin/sh
# Starts Home Assistant within the Debian beside this file: hass -c FOLDER ...
exec unshare --mount --propagation private sh -ec '
root=$1; config=$3; shift
PATH=$PATH:/usr/sbin:/sbin
mkdir -p "$root$config"
mount --bind "$config" "$root$config"
for name in proc dev sys; do mount --bind "/$name" "$root/$name"; done
exec chroot "$root" /usr/bin/env PATH={venv}/bin:/usr/bin:/bin {venv}/bin/hass "$@"
' hass "$(dirname "$(dirname "$(readlink -f "$0")")")/root" "$@"
"""


def install(folder: Path) -> str:
    """Install what is missing; the release.

    Raises:
        SystemExit: this machine cannot run it; says why in a sentence.
    """
    wanted = os.environ.get("HOMEASSISTANT_SUITE", "")
    if wanted and wanted not in SUITES:
        raise SystemExit(f"HOMEASSISTANT_SUITE is {wanted}; known are {', '.join(SUITES)}")
    try:
        if not wanted:
            return rig.install(folder)
    except SystemExit:
        wanted = _NEWEST
    try:
        return _install_with_its_debian(folder, SUITES[wanted])
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd))
        raise SystemExit(f"Home Assistant could not be installed: {command} failed") from error


def _install_with_its_debian(folder: Path, suite: Suite) -> str:
    marker = folder / ".installed"
    if marker.exists() and marker.read_text(encoding="ascii") == suite.release:
        return suite.release
    if re.search(r"\s", str(folder)):
        raise SystemExit(f"debootstrap unpacks into no path with a space: {folder}")
    mirror = _mirror_or_stop()
    shutil.rmtree(folder, ignore_errors=True)
    root = folder / "root"
    root.mkdir(parents=True)
    _unpack(root, suite, mirror)
    _share_certificates(root)
    _install_inside(folder, suite)
    hass = folder / "bin" / "hass"
    hass.parent.mkdir()
    hass.write_text(_HASS.format(venv=_VENV), encoding="utf-8")
    hass.chmod(0o755)
    # It shall ask nobody outside, whoever starts it.
    (root / "etc" / "resolv.conf").write_text("nameserver 127.0.0.1\n", encoding="ascii")
    marker.write_text(suite.release, encoding="ascii")
    return suite.release


def _mirror_or_stop() -> str:
    """The archive that this machine's own packages come from."""
    if os.geteuid() != 0:
        raise SystemExit(_CANNOT.format(why="that needs root"))
    for program in ("apt-get", "unshare"):
        if shutil.which(program) is None:
            raise SystemExit(_CANNOT.format(why=f"there is no {program}"))
    sources = Path("/etc/apt")
    files = [*sources.glob("sources.list.d/*.sources"), *sources.glob("sources.list.d/*.list")]
    for path in [*files, sources / "sources.list"]:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        pattern = r"^(?:URIs:\s*|deb\s+(?:\[[^]]*\]\s+)?)(\S+/debian)/?(?:\s|$)"
        if found := re.search(pattern, text, re.MULTILINE):
            return found[1]
    raise SystemExit(_CANNOT.format(why="apt's sources name no Debian archive"))


def _unpack(root: Path, suite: Suite, mirror: str) -> None:
    if shutil.which("debootstrap", path=_environment()["PATH"]) is None:
        _run("apt-get", "update", "-qq")
        _run("apt-get", "install", "-y", "-qq", "--no-install-recommends", "debootstrap")
    packages = [suite.python, f"{suite.python}-dev", _COMPILER, "ca-certificates", "tzdata"]
    _run(
        "debootstrap", "--variant=minbase", f"--include={','.join(packages)}",
        # An older debootstrap does not know the name; all of today's suites are unpacked alike.
        suite.name, str(root), mirror, "sid",
    )  # fmt: skip


def _share_certificates(root: Path) -> None:
    """Who sits behind a proxy with its own authority has that authority inside, too."""
    names = {"/etc/resolv.conf", "/etc/hosts"}
    names |= {os.environ[n] for n in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE") if n in os.environ}
    for name in filter(os.path.isfile, names):
        inside = root / name.lstrip("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.unlink(missing_ok=True)
        shutil.copyfile(name, inside)


def _install_inside(folder: Path, suite: Suite) -> None:
    """The release alone first: it is read what it needs, and by what it is constrained."""
    root = folder / "root"
    shutil.copy2(Path(sys.executable).with_name("uv"), root / "usr" / "bin" / "uv")
    _within(root, "uv", "venv", "--quiet", "--python", f"/usr/bin/{suite.python}", _VENV)
    install = ("uv", "pip", "install", "--quiet", "--no-cache", "--python", f"{_VENV}/bin/python")
    _within(root, *install, "--no-deps", f"homeassistant=={suite.release}")
    package = f"{_VENV}/lib/{suite.python}/site-packages/homeassistant"
    needed = "/tmp/requirements.txt"  # noqa: S108  # of the unpacked Debian, which nobody else has
    requirements = rig._requirements(root / package.lstrip("/"))
    (root / needed.lstrip("/")).write_text("\n".join(requirements), encoding="utf-8")
    constraints = f"{package}/package_constraints.txt"
    _within(root, *install, f"homeassistant=={suite.release}", "-r", needed, "-c", constraints)


def _within(root: Path, *command: str) -> None:
    """Run a command in the unpacked Debian; its mounts end with it."""
    script = (
        'root=$1; shift; for name in proc dev sys; do mount --bind "/$name" "$root/$name"; done; '
        'exec chroot "$root" "$@"'
    )
    _run(
        "unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "in", root, *command
    )


def _run(*command: str | Path) -> None:
    """Run a command; only a failed one has something to say to people."""
    done = subprocess.run(
        command, check=False, env=_environment(), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        sys.stderr.write(done.stdout[-3000:])
        done.check_returncode()


def _environment() -> dict[str, str]:
    """Who became root by a plain su has not the path to root's programs."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin:/bin"
    return {**os.environ, "PATH": path, "DEBIAN_FRONTEND": "noninteractive"}


if __name__ == "__main__":
    print(install(Path(sys.argv[1]).resolve()))  # noqa: T201
