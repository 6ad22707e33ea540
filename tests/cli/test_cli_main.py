"""The command line itself: help, mistakes, exit codes, and streams that fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rig.program import COMMAND, call, run

from clusterllm_mqtt import __version__

COMMANDS = ["bridge", "probe", "browse", "advertise", "status", "clear", "config", "schema"]
HEAVY = {"asyncio", "httpx", "paho", "pydantic", "rich", "ssl", "yaml", "zeroconf"}
FULL = Path("/dev/full")


def modules_after(*argv: str) -> set[str]:
    """What is loaded in a fresh interpreter once a command has ended."""
    code = (
        "import sys\n"
        "from clusterllm_mqtt.cli.main import main\n"
        f"try: main({argv!r})\n"
        "except SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


def test_help_names_every_command_and_exit_code() -> None:
    assert "Exit codes: 0 stopped" in run("--help").stdout
    words = [line.split()[0] for line in run("--help").stdout.splitlines() if line[4:5].isalpha()]
    assert [word for word in words if word in COMMANDS] == COMMANDS


def test_help_loads_nothing_heavy() -> None:
    assert not HEAVY & modules_after("--help")
    assert not HEAVY & modules_after("bridge", "--help")


@pytest.mark.parametrize(
    ("argv", "unneeded"),
    [
        (("probe", "ftp://x"), {"paho", "zeroconf"}),
        (("advertise", "--port", "1", "--path", "x"), {"httpx", "paho", "rich"}),
    ],
)
def test_a_command_loads_only_what_it_needs(argv: tuple[str, ...], unneeded: set[str]) -> None:
    assert not unneeded & modules_after(*argv)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        call(command, "--help")
    assert caught.value.code == 0
    assert f"usage: clusterllm-mqtt {command} " in capsys.readouterr().out


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        call("--version")
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"clusterllm-mqtt {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("brigde",), "invalid choice: 'brigde'"),
        (("probe",), "the following arguments are required: URL"),
        (("advertise", "--port", "0"), "'0' is no port; use 1 to 65535"),
        (("advertise", "--port", "x"), "'x' is no port; use 1 to 65535"),
        (("browse", "--seconds", "0"), "'0' is no number of seconds"),
        (("browse", "--seconds", "x"), "'x' is no number of seconds"),
        (("browse", "--seconds", "inf"), "'inf' is no number of seconds"),
        (("browse", "--interface", "eth0"), "'eth0' is no IPv4 address of this host"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    argv: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        call(*argv)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (("bridge", "/nonexistent"), "/nonexistent: No such file or directory; check the path"),
        (("config", "check", "/nonexistent"), "/nonexistent: No such file or directory; check"),
        (("status", "/nonexistent"), "/nonexistent: No such file or directory; check the path"),
        (("probe", "ftp://x"), "endpoint 'ftp://x': write it as http://host:port or https://"),
        (("probe", "http://x", "--key-file", "/nonexistent"), "--key-file /nonexistent: No such"),
        (("probe", "http://x", "--ca-file", "/nonexistent"), "CA file '/nonexistent': No such"),
        (("advertise", "--port", "1", "--path", "a"), "--path: path 'a': write one absolute path"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(argv: tuple[str, ...], sentence: str) -> None:
    done = run(*argv)
    assert done.returncode == 2
    assert done.stderr.startswith(f"clusterllm-mqtt: {sentence}")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize("argv", [("--debug", "probe", "ftp://x"), ("probe", "--debug", "ftp://x")])
def test_debug_shows_where_an_error_came_from(argv: tuple[str, ...]) -> None:
    done = run(*argv)
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("clusterllm-mqtt: endpoint 'ftp://x'")


def test_whoever_reads_our_output_may_stop_doing_so() -> None:
    with subprocess.Popen(
        [*COMMAND, "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_output_that_cannot_be_written_is_a_sentence() -> None:
    with FULL.open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "schema"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr == b"clusterllm-mqtt: the output: No space left on device\n"


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "2>&- >&-"])
def test_an_error_that_nobody_can_read_keeps_its_exit_code(redirection: str) -> None:
    line = f'"$0" -m clusterllm_mqtt probe ftp://x {redirection}'
    done = subprocess.run(
        ["sh", "-c", line, sys.executable], capture_output=True, timeout=20, check=False
    )
    assert (done.returncode, done.stdout) == (2, b"")


def test_text_that_the_terminal_has_no_letters_for_is_replaced() -> None:
    done = run("config", "check", CLUSTERLLM_BRIDGE__ID="a", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    done = run(
        "config",
        "check",
        CLUSTERLLM_ENDPOINTS="[{url: 'http://a', name: Büro}]",
        PYTHONIOENCODING="ascii",
    )
    assert done.returncode == 0
    assert "B?ro" in done.stdout
