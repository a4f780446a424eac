"""The Dockerfile and its locks, as far as they can be judged without building the image."""

import http.server
import json
import re
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from decided.settings import Settings
from tests.support.server import running_server
from tests.test_docs import environment, routes

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

Instruction = tuple[str, str]


def instructions() -> list[Instruction]:
    """Instruction and arguments, continued lines joined."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined(lines))]


def joined(lines: list[str]) -> list[str]:
    return re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()


def arguments(word: str, of: list[Instruction] | None = None) -> list[str]:
    return [rest for found, rest in (of or instructions()) if found == word]


def shipped() -> list[Instruction]:
    """The instructions of the last stage."""
    found = instructions()
    return found[max(index for index, (word, _) in enumerate(found) if word == "FROM") :]


class Pin(NamedTuple):
    package: str
    version: str
    hashes: tuple[str, ...]


def pins(name: str) -> set[Pin]:
    """What a lock holds; a package may have several versions, for several Pythons."""
    found = set()
    for line in joined((ROOT / name).read_text().splitlines()):
        requirement, *hashes = line.split("--hash=")
        package, _, version = requirement.partition(";")[0].strip().partition("==")
        assert hashes, f"{name}: {package} has no hash"
        found.add(Pin(package, version.strip(), tuple(sorted(one.strip() for one in hashes))))
    return found


# --- the locks ---


@pytest.mark.parametrize("name", ["requirements-runtime.lock", "requirements-build.lock"])
def test_lock_is_a_part_of_the_whole(name: str) -> None:
    """What is shipped is what was tested: the same versions, the same files."""
    assert pins(name)
    assert pins(name) - pins("requirements.lock") == set(), "run `make lock`"


def test_runtime_lock_has_what_the_project_asks_for_and_no_tools() -> None:
    locked = {pin.package for pin in pins("requirements-runtime.lock")}
    asked = {re.split(r"[^\w.-]", one)[0].lower() for one in PROJECT["project"]["dependencies"]}
    assert asked <= locked
    assert not locked & {"pytest", "mypy", "ruff", "hypothesis", "hatchling", "kubernetes-validate"}


def test_build_lock_has_what_builds_the_wheel() -> None:
    required = PROJECT["build-system"]["requires"]
    assert set(required) <= set(PROJECT["dependency-groups"]["build"])
    assert set(required) <= {f"{pin.package}=={pin.version}" for pin in pins("requirements-build.lock")}


# --- the Dockerfile ---


def test_base_is_pinned_and_one() -> None:
    (base,) = [rest.removeprefix("BASE=") for rest in arguments("ARG") if rest.startswith("BASE=")]
    assert re.fullmatch(r"python:3\.\d+-slim\S*", base)
    assert {rest.split()[0] for rest in arguments("FROM")} == {"${BASE}"}
    minor = int(base.split(".")[1].split("-")[0])
    assert minor >= int(PROJECT["project"]["requires-python"].removeprefix(">=3."))


def test_installs_are_pinned_by_hashes() -> None:
    commands = [command.strip() for rest in arguments("RUN") for command in rest.split("&&")]
    for command in commands:
        if " install " in command:
            assert "--require-hashes" in command or {"--no-deps", "--no-index"} <= set(command.split())
        if " wheel " in command:
            assert {"--no-deps", "--no-build-isolation"} <= set(command.split())
    used = set(re.findall(r"--requirement (\S+)", " ".join(commands)))
    assert used == {"requirements-build.lock", "requirements-runtime.lock"}


def test_the_process_is_not_root_and_gets_the_signals() -> None:
    last = shipped()
    (user,) = arguments("USER", last)
    assert all(int(number) > 0 for number in user.split(":"))
    after = [word for word, _ in last[[word for word, _ in last].index("USER") :]]
    assert not {"RUN", "COPY", "ADD"} & set(after)
    assert arguments("STOPSIGNAL", last) == ["SIGTERM"]
    (entry,), (command,) = arguments("ENTRYPOINT", last), arguments("CMD", last)
    assert [*json.loads(entry), *json.loads(command)] == ["decided", "serve"]  # exec form: no shell in between
    assert set(json.loads(entry)) <= set(PROJECT["project"]["scripts"])
    assert "HOME=" in " ".join(arguments("ENV", last))  # a library asks for it, and the user has no entry
    assert arguments("ADD") == []


def test_user_and_port_are_those_of_the_manifests() -> None:
    manifest = yaml.safe_load((ROOT / "deploy/kubernetes/base/deployment.yaml").read_text())
    context = manifest["spec"]["template"]["spec"]["securityContext"]
    assert arguments("USER", shipped()) == [f"{context['runAsUser']}:{context['runAsGroup']}"]
    assert arguments("EXPOSE", shipped()) == [str(Settings().port)]


def test_what_is_copied_is_let_in() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    let_in = {line[1:] for line in lines if line.startswith("!")}
    copied = {name for rest in arguments("COPY") if "--from" not in rest for name in rest.split()[:-1]}
    assert copied == let_in
    assert all((ROOT / name).exists() for name in let_in)


# --- the health check ---


def health_check(port: int) -> int:
    (found,) = arguments("HEALTHCHECK", shipped())
    program, *rest = json.loads(found.partition("CMD ")[2])
    assert program == "python"
    done = subprocess.run(
        [sys.executable, *rest],
        env=environment() | {"SERVICE_PORT": str(port)},
        capture_output=True,
        timeout=30,
        check=False,
    )
    return done.returncode


def test_health_check_asks_a_real_route() -> None:
    (found,) = arguments("HEALTHCHECK", shipped())
    assert routes()[re.findall(r"'GET', '(.*?)'", found)[0]] == "GET"


def test_health_check_of_a_server() -> None:
    with running_server() as server:
        assert health_check(server.port) == 0
        server.stop()
        assert health_check(server.port) != 0


def test_health_check_of_a_server_that_is_not_ready() -> None:
    class NotReady(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(503)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), NotReady) as unready:
        threading.Thread(target=unready.handle_request, daemon=True).start()
        assert health_check(unready.server_port) != 0
