"""The rules of the house that neither ruff nor import-linter can check."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import clusterllm_mqtt
from clusterllm_mqtt import errors
from clusterllm_mqtt.errors import ClusterLLMError

PACKAGE = Path(clusterllm_mqtt.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
PURE = [
    "drivers/gpustack_inventory.py",
    "drivers/json_reader.py",
    "drivers/model_list.py",
    "drivers/trouble.py",
    "defaults.py",
    "endpoint_memory.py",
    "endpoint_url.py",
    "inventory.py",
    "models.py",
    "recall.py",
    "demo/push_record.py",
    "service_record.py",
    "text.py",
    "mqtt/connack.py",
    "mqtt/discovery.py",
    "mqtt/entities.py",
    "mqtt/in_flight.py",
    "mqtt/messages.py",
    "mqtt/patience.py",
    "mqtt/protocol_choice.py",
    "mqtt/records.py",
    "mqtt/retained.py",
    "mqtt/topics.py",
    "outpost/content.py",
    "outpost/leases.py",
    "outpost/ollama_models.py",
    "outpost/payload.py",
    "outpost/push_plan.py",
    "outpost/roster.py",
]
IMPURE_MODULES = {"asyncio", "logging", "os", "pathlib", "random", "socket", "threading", "time"}


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_is_small_and_says_why_it_exists(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 250
    assert ast.get_docstring(tree_of(path))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_function_has_at_most_40_lines(path: Path) -> None:
    functions = [
        n for n in ast.walk(tree_of(path)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long = {f.name: n for f in functions if (n := (f.end_lineno or f.lineno) - f.lineno + 1) > 40}
    assert long == {}


@pytest.mark.parametrize("name", PURE)
def test_a_pure_file_has_no_async_no_clock_and_no_input_or_output(name: str) -> None:
    for node in ast.walk(tree_of(PACKAGE / name)):
        assert not isinstance(node, ast.AsyncFunctionDef | ast.Await)
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & IMPURE_MODULES
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in IMPURE_MODULES
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"now", "utcnow", "today"}


def test_the_environment_is_read_in_the_configuration_only() -> None:
    readers = [name_of(p) for p in FILES if "os.environ" in p.read_text(encoding="utf-8")]
    assert all(name.startswith("config") for name in readers)


def error_classes() -> list[type[ClusterLLMError]]:
    classes = (c for _, c in inspect.getmembers(errors, inspect.isclass))
    ours: list[Any] = [c for c in classes if c.__module__ == errors.__name__]
    assert all(issubclass(c, ClusterLLMError) for c in ours)
    return ours


@pytest.mark.parametrize("error", error_classes(), ids=lambda c: c.__name__)
def test_every_error_is_in_the_tree_and_says_what_it_means(error: type[ClusterLLMError]) -> None:
    assert error.__doc__
    assert error.__name__ in (errors.__doc__ or "")
    assert isinstance(error.transient, bool)
    assert error.exit_code in {1, 2, 3, 4, 5}


def test_every_public_name_is_there() -> None:
    for name in clusterllm_mqtt.__all__:
        assert getattr(clusterllm_mqtt, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = clusterllm_mqtt.nonsense


def test_the_changelog_knows_the_version() -> None:
    changelog = (PACKAGE.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    top = next(line for line in changelog.splitlines() if line.startswith("## ["))
    version = clusterllm_mqtt.__version__
    assert top == "## [Unreleased]" if "dev" in version else top.startswith(f"## [{version}]")


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert len((PACKAGE.parent / "README.md").read_text(encoding="utf-8").splitlines()) < 150
