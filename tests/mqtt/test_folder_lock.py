"""One process and its child at a time have a folder."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from clusterllm_mqtt.errors import ConfigError
from clusterllm_mqtt.mqtt.folder_lock import folder_lock

if TYPE_CHECKING:
    from pathlib import Path


async def test_the_folder_is_made_for_its_user_only(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    async with folder_lock(folder):
        assert folder.stat().st_mode & 0o777 == 0o700


async def test_a_second_holder_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    async with folder_lock(tmp_path):
        with pytest.raises(ConfigError, match=r"another process uses /.*; stop it first"):
            async with folder_lock(tmp_path, patience_s=0):
                pass
    async with folder_lock(tmp_path, patience_s=0):
        pass


async def test_a_child_holds_on_for_as_long_as_it_lives(tmp_path: Path) -> None:
    async with folder_lock(tmp_path) as descriptor:
        child = await asyncio.create_subprocess_exec("sleep", "0.5", pass_fds=[descriptor])
    with pytest.raises(ConfigError):
        async with folder_lock(tmp_path, patience_s=0):
            pass
    async with folder_lock(tmp_path):
        assert await child.wait() == 0


async def test_a_folder_that_cannot_be_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        async with folder_lock(tmp_path / "file" / "folder"):
            pass
