"""Settings: a flag and a variable each, the flag wins, and a value out of range ends the start by name."""

import os
import subprocess
import sys
import time

import pytest

from decided.cli import main
from decided.errors import SettingsError
from decided.hardware import physical_cores
from decided.serving.start import _within_the_machine
from decided.settings import Settings, load
from tests.spec.checks import bytes_for, eventually, in_flight, refused, served
from tests.spec.wire import Wire, head
from tests.support.server import ROOT, Server, running_server, start

GOOD = {
    "model": "fake",
    "host": "127.0.0.1",
    "port": "0",
    "max-in-flight": "1",
    "request-timeout-s": "1",
    "max-body-bytes": "500",
    "threads": "1",
    "dtype": "float32",
    "device": "cpu",
    "small-batch": "8",
    "page": "off",
    "log-level": "info",
    "log-format": "json",
    "temperature": "choice=1.2,noul=0.9",
    "remote-url": "http://127.0.0.1:9/v1",
}
BAD = {
    "model": ["", " "],
    "host": [""],
    "port": ["65536", "-1", "http", "80.5", ""],
    "max-in-flight": ["0", "-1", "1.5", "many", "", "1e3"],
    "request-timeout-s": ["0", "-1", "nan", "inf", "soon", ""],
    "max-body-bytes": ["0", "-1", "1MiB", ""],
    "threads": ["0", "-1", "two", ""],
    "dtype": ["float99", ""],
    "device": ["tpu", ""],
    "small-batch": ["0", "-1", "some"],
    "page": ["no", "true", "ON", ""],
    "log-level": ["loud", ""],
    "log-format": ["xml", ""],
    "temperature": ["", " ", "0", "-1", "nan", "inf", "warm", "choice=", "choice=0", "mood=1", "noul=1,noul=2", "1,2"],
    "remote-url": [""],
}


def flag(name: str) -> str:
    return f"--{name}"


def variable(name: str) -> str:
    return "SERVICE_" + name.upper().replace("-", "_")


def as_flags(settings: dict[str, str]) -> list[str]:
    return [part for name, value in settings.items() for part in (flag(name), value)]


def as_variables(settings: dict[str, str]) -> dict[str, str]:
    return {variable(name): value for name, value in settings.items()}


# --- where a setting comes from ---


def hold_to_good(server: Server) -> None:
    """The server behaves as the settings in GOOD say."""
    assert served(server.get("/health"))["model"] == GOOD["model"]
    served(server.ask("x"))
    refused(server.request("POST", "/v1/systemone", b" " * 501), 413)
    with Wire(server) as holder:
        began = time.monotonic()
        holder.send(head("Content-Length: 5"))
        assert eventually(lambda: in_flight(server) == 1)
        refused(server.ask("x"), 503)
        refused(holder.reply(), 504)
        assert time.monotonic() - began > 0.9
    assert eventually(lambda: '"status":504' in server.log())


def test_every_setting_is_a_flag() -> None:
    with running_server(*as_flags(GOOD)) as server:
        hold_to_good(server)


def test_every_setting_is_a_variable() -> None:
    server = start(env=as_variables(GOOD))
    try:
        assert eventually(lambda: " on http://127.0.0.1:" in server.log(), 30), server.log()
        server.port = int(server.log().partition(" on http://127.0.0.1:")[2].split('"')[0])
        hold_to_good(server)
        assert server.stop() == 0
    finally:
        server.process.kill()
        server.process.wait()
        server.log_path.unlink()


def test_a_flag_wins_over_its_variable() -> None:
    others = {
        "model": "fake:broken",
        "host": "192.0.2.1",
        "port": "1",
        "max-in-flight": "7",
        "request-timeout-s": "20",
        "max-body-bytes": "100000",
        "log-level": "error",
        "log-format": "text",
    }
    with running_server(*as_flags(GOOD), env=as_variables(others)) as server:
        hold_to_good(server)


def test_a_variable_that_is_nearly_a_setting_is_told() -> None:
    env = {"SERVICE_APIKEY": "secret", "SERVICE_MODLE": "fake", "SERVICE_HOOK_URL": "of something else"}
    with running_server(env=env) as server:
        said = server.log()
    warned = [line for line in said.splitlines() if "is not a setting" in line]
    assert len(warned) == 2
    assert warned[0].endswith("SERVICE_APIKEY is not a setting: did you mean SERVICE_API_KEY?")
    assert warned[1].endswith("SERVICE_MODLE is not a setting: did you mean SERVICE_MODEL?")
    assert "secret" not in said


def test_the_help_names_every_flag_and_its_variable() -> None:
    """With the defaults of the document: 0.0.0.0, 8000, 256 places, 30 seconds, one mebibyte."""
    command = [sys.executable, "-m", "decided", "serve", "--help"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout
    words = " ".join(text.split())
    for name in GOOD:
        assert f"{flag(name)} " in words
        assert f"[{variable(name)}]" in words
    for secret in ("SERVICE_API_KEY", "SERVICE_API_KEY_FILE"):
        assert secret in words
    for name, default in (
        ("host", "0.0.0.0"),
        ("port", "8000"),
        ("max-in-flight", "256"),
        ("request-timeout-s", "30.0"),
        ("max-body-bytes", "1048576"),
    ):
        line = words.partition(f"{flag(name)} ")[2].partition(f"[{variable(name)}]")[0]
        assert f"default: {default}" in line


def test_the_help_says_what_a_flag_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = capsys.readouterr().out
    for taken in (
        "--model MODEL", "--port PORT", "--threads N", "--page {on,off}", "--keep-texts {on,off}", "--audit-log FILE",
        "--device {auto,cpu,cuda,mps}", "--log-format {text,json}", "--profiles FOLDER", "--shadow-share SHARE",
    ):  # fmt: skip
        assert taken in shown
    assert "default: on" in shown
    assert "default: True" not in shown
    assert "SIGHUP" in shown
    with pytest.raises(SystemExit):
        main(["ask", "--help"])
    assert "SIGHUP" not in capsys.readouterr().out, "it would end what is no server"


def test_switches_are_true_or_false() -> None:
    """For who makes settings in Python, with the words of flags and variables read as before."""
    assert (Settings().page, Settings().keep_texts, Settings().trust_remote_code) == (True, False, False)
    chosen = load({"page": "off", "keep_texts": "on"}, {"SERVICE_TRUST_REMOTE_CODE": "on"})
    assert (chosen.page, chosen.keep_texts, chosen.trust_remote_code) == (False, True, True)
    for wrong in ({"page": "off"}, {"keep_texts": "yes"}, {"device": "tpu"}, {"audit": True}):
        (name,) = wrong
        with pytest.raises(SettingsError, match=f"{name} must be one of"):
            Settings(**wrong)


@pytest.mark.parametrize("secret", ["--api-key", "--api-key-file"])
def test_a_key_is_no_flag(secret: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["serve", secret, "k"])
    assert stopped.value.code == 2
    assert secret in capsys.readouterr().err


# --- values out of range ---


@pytest.mark.parametrize(
    ("name", "source"),
    [("max-in-flight", "flag"), ("request-timeout-s", "variable"), ("max-body-bytes", "variable"), ("threads", "flag")],
)
def test_a_value_out_of_range_ends_the_start_with_2_by_name(name: str, source: str) -> None:
    bad = {name: BAD[name][0]}
    good = {other: value for other, value in GOOD.items() if other != name}
    server = start(*as_flags(good | bad)) if source == "flag" else start(*as_flags(good), env=as_variables(bad))
    try:
        assert server.process.wait(60) == 2
        assert (flag(name) if source == "flag" else variable(name)) in server.log()
        assert "Traceback" not in server.log()
    finally:
        server.log_path.unlink()


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_all_values_out_of_range(
    name: str, value: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them, as flags and as variables, in this process: so many starts would take long."""
    for key in [key for key in os.environ if key.startswith("SERVICE_")]:
        monkeypatch.delenv(key)
    assert main(["serve", f"{flag(name)}={value}"]) == 2
    assert flag(name) in capsys.readouterr().err
    monkeypatch.setenv(variable(name), value)
    assert main(["serve"]) == 2
    assert variable(name) in capsys.readouterr().err


def test_there_are_no_more_threads_than_cores() -> None:
    cores = physical_cores()
    for asked, threads in ((4000, cores), (cores + 1, cores), (cores, cores), (1, 1), (None, None)):
        assert _within_the_machine(Settings(threads=asked)).threads == threads


def test_threads_above_the_cores_are_capped_with_a_warning() -> None:
    with running_server("--threads", "4000") as server:
        served(server.request("POST", "/v1/systemone", bytes_for()))
        (warning,) = [line for line in server.log().splitlines() if "--threads" in line]
        assert "WARNING" in warning
        assert "4000" in warning
