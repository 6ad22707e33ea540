"""One file, the environment over it, and a clear sentence for each mistake."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from pathlib import Path

import pytest
from pydantic import SecretStr

from clusterllm_mqtt.config.bridge import bridge_options, endpoints, state_folder
from clusterllm_mqtt.config.broker import broker_options
from clusterllm_mqtt.config.reference import INFO_SCHEMA, markdown
from clusterllm_mqtt.config.settings import Settings, load_settings
from clusterllm_mqtt.config.source import read_secret
from clusterllm_mqtt.errors import ConfigError
from clusterllm_mqtt.models import Source
from clusterllm_mqtt.mqtt.broker_options import BrokerOptions

DOCS = Path(__file__).parent.parent / "docs"
SECRET = "s3cret"  # noqa: S105  # not one


def load(tmp_path: Path, text: str, **environ: str) -> Settings:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path, environ)


def mistake(tmp_path: Path, text: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        bridge_options(settings := load(tmp_path, text, **environ), broker_options(settings.mqtt))
    sentence = str(caught.value).replace(str(tmp_path), "")
    assert SECRET not in sentence
    return sentence


def test_without_a_file_everything_has_a_default() -> None:
    settings = load_settings(None, {})
    assert settings == Settings()
    options = bridge_options(settings, BrokerOptions())
    assert (options.interval_s, options.failure_threshold) == (15, 2)
    assert options.forget_after_s == 7 * 86400
    assert options.mdns is not None
    assert options.mdns.max_services == options.max_browsed == 64
    assert load_settings(None, {"PATH": "x", "OTHER": "y"}) == settings


def test_the_example_is_right_and_the_reference_is_generated(tmp_path: Path) -> None:
    text = (DOCS / "example.yaml").read_text(encoding="utf-8")
    for name in ("mqtt-password", "gpustack-key"):
        (tmp_path / name).write_text("x\n", encoding="utf-8")
    settings = load(tmp_path, text.replace("/etc/clusterllm-mqtt", str(tmp_path)))
    bridge_options(settings, broker_options(settings.mqtt))
    assert (DOCS / "configuration.md").read_text(encoding="utf-8") == markdown()


def test_times_have_units(tmp_path: Path) -> None:
    for text, seconds in (("30", 30), ("30s", 30), ("1.5m", 90), ("1h", 3600), ('"20"', 20)):
        assert load(tmp_path, f"probe: {{interval: {text}}}").probe.interval == seconds
    assert load(tmp_path, "mdns: {forget_after: 7d}").mdns.forget_after == 7 * 86400


def test_json_is_a_subset(tmp_path: Path) -> None:
    assert load(tmp_path, json.dumps({"bridge": {"id": "attic"}})).bridge.id == "attic"
    assert load(tmp_path, "") == Settings()


def test_the_environment_lies_over_the_file(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        "mqtt: {host: a, port: 1}\nmdns: {enabled: true}",
        CLUSTERLLM_MQTT__PORT="2",
        CLUSTERLLM_MDNS__ENABLED="false",
        CLUSTERLLM_MDNS__INTERFACES="[127.0.0.1]",
        CLUSTERLLM_ENDPOINTS='[{"url": "http://a"}]',
    )
    assert (settings.mqtt.host, settings.mqtt.port) == ("a", 2)
    assert not settings.mdns.enabled
    assert [str(a) for a in settings.mdns.interfaces] == ["127.0.0.1"]
    assert settings.endpoints[0].url == "http://a"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("mqqt: {}", "/config.yaml:1: mqqt is no setting; did you mean mqtt?"),
        (
            "mqtt:\n  host: a\n  prot: 5",
            "/config.yaml:3: mqtt.prot is no setting; did you mean port?",
        ),
        (
            "endpoints:\n- url: http://a\n  nam: x",
            ":3: endpoints.0.nam is no setting; did you mean name?",
        ),
        ("probe: {zzz: 1}", "probe.zzz is no setting; known here: interval, failure_threshold"),
        ("mqtt: {host: a, host: b}", ":1: mqtt.host stands in line 1 already; keep one"),
        ("mqtt:\n  port: many", ":2: mqtt.port: input should be a valid integer"),
        ("mqtt: {port: 70000}", "mqtt.port: input should be less than or equal to 65535"),
        ("probe: {interval: fast}", "probe.interval: write a time, like 15s, 10m, 12h or 7d"),
        ("probe: {interval: 0}", "probe.interval: input should be greater than or equal to 1"),
        ("probe: {interval: .inf}", "probe.interval: input should be less than or equal to 3600"),
        ("endpoints: [{name: x}]", "endpoints.0.url is missing"),
        (
            "endpoints: [{url: 'http://a', key: 'A B'}]",
            "endpoints.0.key: write 1 to 64 of a-z, 0-9, _ and -",
        ),
        ("mdns: {allowed_networks: [nonsense]}", "mdns.allowed_networks.0: "),
        (
            "mdns: {extra_service_types: [ollama]}",
            "mdns.extra_service_types.0: write a service type, like _ollama._tcp",
        ),
        ("mqtt: [1, 2]", ":1: mqtt: write its settings below it, by name"),
        ("- a\n- b", "/config.yaml: the file holds a list, not settings by name"),
        ("a: [", "/config.yaml:1: not YAML"),
        ("a: b: c", "/config.yaml:1: not YAML: mapping values are not allowed here"),
        ("\x01", "/config.yaml: not YAML: control characters are not allowed"),
        ("[" * 5000, "/config.yaml: not YAML: nested too deeply"),
        ("bridge: {id: 2001-99-99}", "a date or number that is none; put it in quotes"),
        ("mqtt:\n  password: *s3cret", ":2: not YAML: found undefined alias of that name"),
        ("mqtt: {password: !s3cret x}", "tag of that name; text with special characters goes in"),
        ("bridge: {id: 'a/b'}", "bridge id 'a/b'"),
        ("mqtt: {base_topic: 'a/#'}", "base topic 'a/#'"),
        ("endpoints: [{url: 'ftp://a'}]", "write it as http://host:port"),
        ("endpoints: [{url: 'http://me:s3cret@a'}]", "a key belongs into api_key"),
        ("endpoints: [{url: 'http://a?x=s3cret'}]", "leave out the query"),
        (
            "endpoints: [{url: 'http://a', name: x}, {url: 'http://b', name: x}]",
            "endpoints.0 and endpoints.1 have the same name 'x'; rename one",
        ),
        (
            "endpoints: [{url: 'http://a', name: x}, {url: 'http://a/', name: y}]",
            "endpoints.0 and endpoints.1 have the same url; remove one",
        ),
        (
            "endpoints: [{url: 'http://a', key: k}, {url: 'http://b', key: k}]",
            "endpoints.0 and endpoints.1 have the same key 'k'; change one",
        ),
        (
            "mqtt: {username: a, password_file: /nonexistent}",
            "mqtt.password_file /nonexistent: No such",
        ),
        ("mqtt: {username: a, password: s3cret, password_file: /x}", "are both set; keep one"),
        ("mqtt: {password: s3cret}", "mqtt.password is set without mqtt.username"),
        ("mqtt: {password: [s3cret]}", "mqtt.password: write text; a number goes in quotes"),
        ("mqtt: {cert_file: /x}", "mqtt.cert_file is set without mqtt.key_file; set both or none"),
        ("mqtt: {key_file: /x}", "mqtt.key_file is set without mqtt.cert_file"),
        ("mqtt: {host: a, ca_file: /x}", "mqtt.ca_file is set without mqtt.tls"),
        ("mqtt: {tls: true}", "mqtt.tls is set without mqtt.host"),
        ("mqtt: {username: a}", "mqtt.username is set without mqtt.host"),
        ("mqtt: {protocol: 4}", "mqtt.protocol: input should be 'auto', '5' or '3.1.1'"),
        ("mdns: {interfaces: 127.0.0.1}", "mdns.interfaces: write a list, like [a, b]"),
        ("mdns: {interfaces: [eth0]}", "mdns.interfaces.0: input is not a valid IPv4 address"),
        ("endpoints: [{url: 'http://a', backend: llama.cpp}]", "did you mean llamacpp?"),
        ("log: {level: loud}", "log.level: input should be 'debug', 'info', 'warning' or 'error'"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_the_remedy(
    tmp_path: Path, text: str, sentence: str
) -> None:
    assert sentence in mistake(tmp_path, text)


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    lines = mistake(tmp_path, "mqqt: {}\nprobe: {interval: x}").splitlines()
    assert len(lines) == 2


def test_a_mistake_in_the_environment_names_the_variable(tmp_path: Path) -> None:
    found = mistake(tmp_path, "", CLUSTERLLM_MQTT__PROT="1")
    assert found == "CLUSTERLLM_MQTT__PROT: mqtt.prot is no setting; did you mean port?"
    found = mistake(tmp_path, "", CLUSTERLLM_MDNS__INTERFACES="[a")
    assert found == (
        "CLUSTERLLM_MDNS__INTERFACES: mdns.interfaces: not a YAML list; write it like [a, b]"
    )
    found = mistake(tmp_path, "", CLUSTERLLM_ENDPOINTS__0__URL="http://a")
    assert found == "CLUSTERLLM_ENDPOINTS__0__URL: endpoints: write a list, like [a, b]"
    found = mistake(tmp_path, "mqtt: {host: a}", CLUSTERLLM_MQTT="text")
    assert found.startswith("CLUSTERLLM_MQTT: mqtt: ")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: No such file"):
        load_settings(tmp_path / "none.yaml", {})
    with pytest.raises(ConfigError, match="Is a directory"):
        load_settings(tmp_path, {})
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"bridge: {id: \xff}")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_settings(latin, {})
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(ConfigError, match="1 MiB"):
        load_settings(large, {})


def test_an_error_in_an_overlaid_list_names_the_variable_not_the_file(tmp_path: Path) -> None:
    text = "endpoints:\n- url: http://a\n  name: x"
    found = mistake(tmp_path, text, CLUSTERLLM_ENDPOINTS="[{url: 'http://b', nam: x}]")
    assert found.startswith("CLUSTERLLM_ENDPOINTS: endpoints.0.nam is no setting")


def test_what_people_write_without_quotes_and_without_a_value(tmp_path: Path) -> None:
    assert load(tmp_path, "mqtt:\n  # host: a\nendpoints:\nprobe: {interval: }") == Settings()
    assert load(tmp_path, "mqtt: {protocol: 5}").mqtt.protocol == "5"
    environ = {"CLUSTERLLM_MQTT__PASSWORD": "[not a list"}
    assert load_settings(None, environ).mqtt.password == SecretStr("[not a list")
    assert load(tmp_path, "endpoints: [{url: 'http://a', backend: vllm}]").endpoints[0].backend


def test_a_secret_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(f"{SECRET}\n", encoding="utf-8")
    assert read_secret(path, "k") == SecretStr(SECRET)
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"k .*key is empty; write the secret into it"):
        read_secret(path, "k")
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8; save it as UTF-8"):
        read_secret(path, "k")
    with pytest.raises(ConfigError, match="Is a directory; check the path"):
        read_secret(tmp_path, "k")


def test_secrets_are_in_no_representation(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = (
        f"mqtt: {{host: h, username: a, password: {SECRET}}}\n"
        f"endpoints: [{{url: 'http://a', api_key: {SECRET}}}]"
    )
    settings = load(tmp_path, text)
    options = bridge_options(settings, broker_options(settings.mqtt))
    logging.getLogger("test").error("%s %r", settings, options)
    shown = f"{settings!r}{options!r}{settings.model_dump_json()}{caplog.text}"
    assert SECRET not in shown
    assert options.endpoints[0].config.secret == SECRET
    assert options.broker.password == SecretStr(SECRET)


def test_the_keys_of_configured_endpoints(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        "endpoints: [{url: 'http://a:1/', name: Big}, {url: 'http://b:2'},"
        " {url: 'http://c', key: old}]",
    )
    named, unnamed, kept = endpoints(settings.endpoints)
    assert named.identity == "configured:Big"
    assert named.key.startswith("big-")
    assert (unnamed.name, unnamed.identity) == ("http://b:2", "configured:http://b:2")
    assert unnamed.key.startswith("b-2-")
    assert kept.key == "old"
    assert {e.source for e in (named, unnamed, kept)} == {Source.CONFIGURED}
    assert named.config.endpoint == "http://a:1"


def test_mdns_can_be_widened_and_switched_off(tmp_path: Path) -> None:
    settings = load(tmp_path, "mdns: {extra_service_types: [_ollama._tcp], max_endpoints: 3}")
    options = bridge_options(settings, BrokerOptions())
    assert options.mdns is not None
    assert options.mdns.service_types[-1] == "_ollama._tcp"
    assert options.max_browsed == 3
    off = load(tmp_path, "mdns: {enabled: false}")
    assert bridge_options(off, BrokerOptions()).mdns is None


def test_the_state_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert str(state_folder()) == "/var/state/clusterllm-mqtt"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert str(state_folder()).endswith("/.local/state/clusterllm-mqtt")


def test_the_schemas_are_json() -> None:
    assert json.loads(json.dumps(Settings.model_json_schema()))["additionalProperties"] is False
    assert json.loads(json.dumps(INFO_SCHEMA))["required"] == ["state"]


@pytest.mark.parametrize(
    "host", ["mqtt://192.168.1.2", "192.168.1.2:1883", "a b", "user@host", "host/path"]
)
def test_a_broker_is_a_host_name_alone(tmp_path: Path, host: str) -> None:
    assert "write the name alone" in mistake(tmp_path, f"mqtt: {{host: '{host}'}}")


def test_an_ipv6_broker_is_fine(tmp_path: Path) -> None:
    settings = load(tmp_path, "mqtt: {host: 'fd00::1'}")
    assert broker_options(settings.mqtt).host == "fd00::1"


def test_a_secret_without_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="64 KiB"):
        read_secret(Path("/dev/zero"), "k")


def test_a_pipe_that_nobody_writes_to_is_an_empty_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="is empty; write the secret into it"):
        read_secret(pipe, "mqtt.password_file")
    assert load_settings(pipe, {}) == Settings()


def test_a_secret_may_come_through_a_pipe_and_take_its_time() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 0.2; echo sesame"], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        path = Path(f"/dev/fd/{writer.stdout.fileno()}")
        assert read_secret(path, "x").get_secret_value() == "sesame"


def test_aliases_within_aliases_are_refused_at_once(tmp_path: Path) -> None:
    """Nine lines that would become a billion values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "use aliases (*name) sparingly" in mistake(tmp_path, "\n".join(lines))


def test_an_alias_is_fine(tmp_path: Path) -> None:
    text = "endpoints:\n- {url: 'http://a', api_key: &k s3cret}\n- {url: 'http://b', api_key: *k }"
    first, second = load(tmp_path, text).endpoints
    assert first.api_key == second.api_key
