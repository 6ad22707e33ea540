"""Installs a real Home Assistant into a folder: `python homeassistant_install.py FOLDER`.

It needs a Python of at least 3.13 on the path and uv beside this interpreter. Another release is
chosen by HOMEASSISTANT_RELEASE together with the HOMEASSISTANT_PYTHON that runs it. The release's
own constraints come first: without them the resolver wanders for many minutes.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

_RELEASES: Final = (
    ((3, 14, 2), "2026.11.0"),
    ((3, 13, 2), "2026.2.3"),
    ((3, 13, 0), "2025.4.4"),
)
"""The newest release that each Python runs, newest first."""

_WANTED: Final = (
    "api", "automation", "blueprint", "config", "frontend", "hassio", "history", "logbook",
    "lovelace", "mqtt", "onboarding", "persistent_notification", "person", "recorder", "stream",
    "sun", "system_log", "template", "websocket_api",
)  # fmt: skip
"""hassio and stream are only imported, by mqtt's configuration flow and the camera platform."""

_OLD_NEEDS: Final = {"2024.11.3": ("josepy<2", "pycares<5")}
"""What has moved on under an old release, whose constraints do not hold it."""

_TOO_OLD: Final = "Home Assistant needs Python 3.13 or newer on the path, for example python3.13"


def install(folder: Path) -> str:
    """Install what is missing; the release.

    Raises:
        SystemExit: there is no Python that serves.
    """
    python, release = _chosen() or _newest()
    marker = folder / ".installed"
    if not marker.exists() or marker.read_text(encoding="ascii") != release:
        shutil.rmtree(folder, ignore_errors=True)
        _uv("venv", "--quiet", "--python", python, str(folder))
        source = _source(folder, release)
        requirements = folder / "requirements.txt"
        requirements.write_text("\n".join(_requirements(source)), encoding="utf-8")
        _uv(
            "pip", "install", "--quiet", "--python", str(folder / "bin" / "python"),
            f"homeassistant=={release}", *_OLD_NEEDS.get(release, ()), "-r", str(requirements),
            "-c", str(source / "package_constraints.txt"),
        )  # fmt: skip
        marker.write_text(release, encoding="ascii")
    return release


def _chosen() -> tuple[str, str] | None:
    python, release = (os.environ.get(f"HOMEASSISTANT_{n}") for n in ("PYTHON", "RELEASE"))
    return (python, release) if python and release else None


def _newest() -> tuple[str, str]:
    """The newest interpreter that serves, and the newest release for it."""
    for name in ("python3.14", "python3.13"):
        for path in _all_on_path(name):
            done = subprocess.run(
                [path, "-c", "import sys; print(*sys.version_info[:3])"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            version = tuple(map(int, done.stdout.split())) if done.returncode == 0 else ()
            for least, release in _RELEASES:
                if version >= least:
                    return path, release
    raise SystemExit(_TOO_OLD)


def _all_on_path(name: str) -> list[str]:
    """Pyenv's shims may name a Python that is not active; its versions are found beside them."""
    found = shutil.which(name)
    versions = Path.home() / ".pyenv" / "versions"
    return [*([found] if found else []), *map(str, sorted(versions.glob(f"*/bin/{name}")))]


def _uv(*arguments: str) -> None:
    subprocess.run([Path(sys.executable).with_name("uv"), *arguments], check=True)


def _source(folder: Path, release: str) -> Path:
    """The wheel, unpacked, to read what it needs."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--only-binary=:all:", "--python-version", "3.14.2"]
    wheel = f"homeassistant=={release}"
    subprocess.run([*command, *options, "--dest", str(folder), wheel], check=True)
    [archive] = folder.glob("homeassistant-*.whl")
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder / "source")
    archive.unlink()
    return folder / "source" / "homeassistant"


def _requirements(source: Path) -> list[str]:
    """What the wanted integrations, and those that are set up unasked, need from PyPI."""
    stack = [*_WANTED, *_set_up_unasked(source)]
    seen: set[str] = set()
    needed: set[str] = set()
    while stack:
        name = stack.pop()
        if name not in seen:
            seen.add(name)
            path = source / "components" / name / "manifest.json"
            manifest = json.loads(path.read_text(encoding="utf-8"))
            needed.update(manifest.get("requirements", []))
            stack += manifest.get("dependencies", [])
    return sorted(needed)


def _set_up_unasked(source: Path) -> list[str]:
    found: list[str] = []
    for node in ast.parse((source / "bootstrap.py").read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        names = {target.id for target in targets if isinstance(target, ast.Name)}
        if names & {"DEFAULT_INTEGRATIONS", "FRONTEND_INTEGRATIONS"}:
            found += _texts(node)
            if any(isinstance(n, ast.Name) and n.id == "BASE_PLATFORMS" for n in ast.walk(node)):
                platforms = (source / "generated" / "entity_platforms.py").read_text("utf-8")
                found += _texts(ast.parse(platforms))
    return [name for name in found if (source / "components" / name).is_dir()]


def _texts(tree: ast.AST) -> list[str]:
    nodes = ast.walk(tree)
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


if __name__ == "__main__":
    print(install(Path(sys.argv[1]).resolve()))  # noqa: T201
