"""What `gpu.py` or `cores.py` needs, as wheels in a folder, for a machine without network."""

import importlib
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKED = (
    "annotated-doc anyio certifi click filelock fsspec h11 hf-xet httpcore2 httptools httpx2 huggingface-hub idna "
    "jinja2 markupsafe msgspec opendecider packaging prometheus-client pyyaml regex rich safetensors shellingham "
    "tokenizers tqdm transformers truststore typer typing-extensions uvloop zstandard"
)


def pack(folder: Path, python: str, names: str = PACKED) -> None:
    """Fetch the wheels of what the benchmark needs, in the versions of the locks, for the other machine's Python."""
    pins = {}
    for lock in ("requirements.lock", "requirements-torch.lock"):
        for line in (ROOT / lock).read_text().splitlines():
            name, found, rest = line.partition("==")
            if found and name in names.split():
                pins[name] = f"{name}=={rest.split()[0]}"
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (28, 24, 17)] + [
        "--platform=manylinux2014_x86_64"
    ]
    abis = [f"--abi={abi}" for abi in (f"cp{python.replace('.', '')}", "abi3", "none")]
    target = [f"--python-version={python}", "--implementation=cp", *abis, *platforms]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", *target]
    subprocess.run([*command, "-d", str(folder), *pins.values()], check=True)
    size = sum(wheel.stat().st_size for wheel in folder.glob("*.whl"))
    print(f"{len(pins)} wheels, {size / 2**20:.0f} MB, in {folder}")


def unpack(folder: Path, site: Path) -> None:
    """Put carried wheels, and this package, where this process and its children find them."""
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    info = site / f"decided-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: decided\nVersion: {version}\n")
    find_in(str(site))


def find_in(*places: str) -> None:
    sys.path[:0] = places
    os.environ["PYTHONPATH"] = os.pathsep.join([*places, os.environ.get("PYTHONPATH", "")])
    importlib.invalidate_caches()
