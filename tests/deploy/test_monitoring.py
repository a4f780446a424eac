"""The alert rules and the dashboard: they speak of metrics that the server has, and a real Prometheus takes them."""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml

from tests.profiles.shelf import TOPIC, written
from tests.spec.checks import eventually
from tests.support.server import PATIENCE_S, ROOT, Server, running_server

FOLDER = ROOT / "deploy" / "monitoring"
RULES = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
BINARIES = [shutil.which(name) for name in ("prometheus", "promtool")]
needs_prometheus = pytest.mark.skipif(None in BINARIES, reason="Prometheus is not installed")


def rules() -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"]]


def dashboard_expressions() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that has answered with a profile, been told an outcome, and keeps an audit log."""
    folder = tmp_path_factory.mktemp("monitored")
    written(folder / "p")
    (folder / "key").write_text("0123456789abcdef" * 2)
    profiles = ("--profiles", str(folder / "p"), "--outcomes", str(folder / "o.jsonl"))
    audit = ("--audit-log", str(folder / "audit"), "--audit-key-file", str(folder / "key"))
    with running_server(*profiles, *audit) as server:
        server.ask("my money", {"q": TOPIC}, {"x-request-id": "one"})
        told = server.request("POST", "/v1/outcomes", {"request_id": "one", "outcomes": {"q": "bill"}})
        assert told.status == 200
        yield server


def test_every_metric_is_one_of_the_server(server: Server) -> None:
    metrics = server.get("/metrics").body.decode()
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for expression in [*(rule["expr"] for rule in rules()), *dashboard_expressions()]:
        for name in re.findall(r"\b(?:service|decided)[_:][\w:]+", expression):
            # A counter that is still at zero has a type all the same.
            kind = re.escape(name.removesuffix("_bucket"))
            assert name in recorded or re.search(rf"^# TYPE {kind} ", metrics, re.MULTILINE), name


def test_alerts_say_what_is_wrong() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    assert alerts
    for rule in alerts:
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}


@needs_prometheus
def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", str(FOLDER / "alerts.yaml")], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(rules())} rules found" in done.stdout


@contextmanager
def running_prometheus(folder: Path, target: Server) -> Iterator[str]:
    """A real one with our rules, which reads a server every second."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(FOLDER / "alerts.yaml")],
        "scrape_configs": [{"job_name": "decided", "static_configs": [{"targets": [target.url.split("//")[1]]}]}],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        "prometheus", f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield f"http://{address}"
        finally:
            process.terminate()


def fetch(url: str) -> Any:
    """The data of a reply of Prometheus; None while it does not answer."""
    try:
        with urlopen(url, timeout=PATIENCE_S) as reply:
            return json.load(reply)["data"]
    except OSError:
        return None


@needs_prometheus
def test_a_real_prometheus_evaluates_them(tmp_path: Path, server: Server) -> None:
    with running_prometheus(tmp_path, server) as prometheus:

        def asked(expression: str) -> list[Any]:
            found = fetch(f"{prometheus}/api/v1/query?query={quote(expression)}")
            return found["result"] if found is not None else []

        def estimated() -> bool:
            server.ask("my money", {"q": TOPIC})  # rates need something to count
            return bool(asked("decided:profile_estimated_accuracy:1h"))

        assert eventually(estimated, PATIENCE_S), (tmp_path / "log").read_text()
        (found,) = asked("decided:profile_estimated_accuracy:1h")
        assert found["metric"]["profile"].startswith("topic-")
        assert 0.9 < float(found["value"][1]) < 1
        loaded = [rule for group in fetch(f"{prometheus}/api/v1/rules")["groups"] for rule in group["rules"]]
        assert len(loaded) == len(rules())
        assert {rule["health"] for rule in loaded} <= {"ok", "unknown"}  # unknown: not evaluated yet
        for expression in dashboard_expressions():
            plain = expression.replace("$__rate_interval", "1m").replace("$profile", ".*")
            assert fetch(f"{prometheus}/api/v1/query?query={quote(plain)}") is not None, expression
