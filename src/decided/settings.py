"""All settings, in one frozen object, built once and passed by argument.

Each field is a flag `--its-name` and an environment variable `SERVICE_ITS_NAME`; the flag wins. Secrets are the
exception: a key on a command line is a key in every process list, so those are environment variables alone.
"""

import ipaddress
import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from decided.contract.temperature import Temperatures, read_temperatures
from decided.errors import SettingsError

PREFIX = "SERVICE_"


def _setting(default: Any, about: str, read: Callable[[str], Any], secret: bool = False, metavar: str = "") -> Any:
    return field(default=default, metadata={"about": about, "read": read, "secret": secret, "metavar": metavar})


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def _path(value: str) -> Path:
    return Path(_text(value))


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if not value.strip().isascii() or not value.strip().isdigit() or not low <= int(value) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(value)

    return read


def _seconds(low: float, high: float) -> Callable[[str], float]:
    def read(value: str) -> float:
        message = f"must be a number of seconds from {low:g} to {high:g}"
        try:
            seconds = float(value)
        except ValueError:
            raise ValueError(message) from None
        if not low <= seconds <= high:
            raise ValueError(message)
        return seconds

    return read


def _share(value: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError("must be a number from 0 to 1")
    return share


def _one_of(*values: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value not in values:
            raise ValueError(f"must be one of {', '.join(values)}")
        return value

    return read


def _key(value: str) -> str:
    if not value or value != value.strip() or not value.isprintable():
        raise ValueError("must be one key, without white space around it, that a header can carry")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    model: str = _setting(
        "embedded",
        "the model to serve: KIND, KIND:NAME, a folder or a name on the Hub, see docs/settings.md",
        _text,
        metavar="MODEL",
    )
    revision: str | None = _setting(None, "branch, tag or commit of a model on the Hub (default: its newest)", _text)
    trust_remote_code: str = _setting(
        "off",
        "on lets code that came with a model run, and reads weights in formats that can run code",
        _one_of("off", "on"),
    )
    host: str = _setting("0.0.0.0", "address to listen on; 127.0.0.1 for this machine only", _text)
    port: int = _setting(8000, "port to listen on; 0 takes a free one and logs it", _whole(0, 65535))
    max_in_flight: int = _setting(256, "requests served at a time; one more gets 503 at once", _whole(1, 100_000))
    max_connections: int = _setting(
        10_000, "connections open at a time; one more gets 503 and is closed", _whole(1, 1_000_000)
    )
    request_timeout_s: float = _setting(
        30.0, "seconds from admission to answer, reading the body included; then 504", _seconds(0.001, 86_400)
    )
    worker_grace_s: float = _setting(
        5.0,
        "seconds until a process whose inference worker has stopped or is stuck ends, with exit code 5; 0 keeps it",
        _seconds(0, 86_400),
    )
    max_body_bytes: int = _setting(
        2**20, "largest request body, as received and as decoded; more gets 413", _whole(1, 2**30)
    )
    threads: int | None = _setting(
        None, "CPU threads of the model, at most the physical cores (default: all of them)", _whole(1, 4096)
    )
    dtype: str = _setting(
        "auto",
        "numeric precision: auto, float32, bfloat16, float16, int8",
        _one_of("auto", "float32", "bfloat16", "float16", "int8"),
    )
    device: str = _setting("auto", "where the model runs: auto, cpu, cuda, mps", _one_of("auto", "cpu", "cuda", "mps"))
    small_batch: int | None = _setting(
        None, "questions per forward pass, for some GPU models (default: the model's own)", _whole(1, 65_536)
    )
    page: str = _setting("on", "on serves the playground, a page for people, at /; off does not", _one_of("on", "off"))
    log_level: str = _setting(
        "info",
        "debug, info, warning or error; info has one line per request",
        _one_of("debug", "info", "warning", "error"),
    )
    log_format: str = _setting("text", "text for people, json for machines", _one_of("text", "json"))
    temperature: Temperatures = _setting(
        Temperatures(),
        "how much probabilities are softened (above 1) or sharpened: a number, such as choice=1.2,noul=0.9, "
        "or a file that `decided calibrate` wrote",
        read_temperatures,
    )
    profiles: Path | None = _setting(
        None, "a folder of profiles that `decided teach` wrote; read again on SIGHUP", _path
    )
    outcomes: Path | None = _setting(
        None,
        "a file for outcomes that clients tell at /v1/outcomes, for `decided teach --outcomes` (default: off)",
        _path,
    )
    keep_texts: str = _setting(
        "off", "on keeps the texts beside their outcomes; off keeps what the model made of them", _one_of("off", "on")
    )
    audit_log: Path | None = _setting(
        None, "a file for the record of every decision, see docs/audit.md (default: off)", _path
    )
    audit: str = _setting(
        "required",
        "required sends an answer only when it is in the audit log; best-effort sends it anyway, and counts losses",
        _one_of("required", "best-effort"),
    )
    audit_key_file: Path | None = _setting(
        None, "a file with the key of the hashes that stand for states in the audit log", _path
    )
    audit_max_bytes: int = _setting(
        2**28, "size from which the audit log is put aside as FILE.000001 and so on", _whole(4096, 2**40)
    )
    shadow: str | None = _setting(
        None, "a second model that is asked too, while nobody waits, to be compared; never sent", _text, metavar="MODEL"
    )
    shadow_share: float = _setting(0.05, "the share of the answers that the second model is asked for", _share)
    shadow_log: Path | None = _setting(
        None, "a file for what the two models disagree on, texts included, for `decided eval`", _path
    )
    remote_url: str | None = _setting(None, "address of the remote engine, for models served by one", _text)
    remote_concurrency: int = _setting(64, "calls to the remote engine at a time", _whole(1, 10_000))
    rotations: int = _setting(
        1, "orders of the options to average over where the top two are close, with a language model", _whole(1, 26)
    )
    remote_api_key: str | None = _setting(
        None, "the key that the remote engine asks for; sent to its address alone", _key, secret=True
    )
    api_key: str | None = _setting(
        None, "the one key that the POST endpoints ask for, taken literally", _key, secret=True
    )
    against_api_key: str | None = _setting(
        None,
        "the key of the second server that `decided eval --against` asks; sent to its address alone",
        _key,
        secret=True,
    )
    api_key_file: Path | None = _setting(
        None,
        "a file with NAME=KEY or a key on each line, any of which is accepted; read again on SIGHUP",
        Path,
        secret=True,
    )

    @property
    def open_to_the_network(self) -> bool:
        return not _is_loopback(self.host) and not (self.api_key or self.api_key_file)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def flag(item: Field[Any]) -> str:
    return "--" + item.name.replace("_", "-")


def variable(item: Field[Any]) -> str:
    return PREFIX + item.name.upper()


def all_settings() -> tuple[Field[Any], ...]:
    return fields(Settings)


def flag_settings() -> list[Field[Any]]:
    return [item for item in all_settings() if not item.metadata["secret"]]


def load(flags: Mapping[str, str], environment: Mapping[str, str] | None = None) -> Settings:
    """Settings from flags (by field name), else from the environment, else the defaults."""
    given = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    for item in all_settings():
        source, value = (
            (flag(item), flags[item.name]) if item.name in flags else (variable(item), given.get(variable(item)))
        )
        if value is None:
            continue
        try:
            values[item.name] = item.metadata["read"](value)
        except ValueError as error:
            shown = "" if item.metadata["secret"] else f", not {value!r}"
            raise SettingsError(f"{source} {error}{shown}") from None
    return Settings(**values)


def exports_traces() -> bool:
    """Whether the environment names a collector for traces, by the names that all programs have for it."""
    return any(os.environ.get(f"OTEL_EXPORTER_OTLP_{which}ENDPOINT") for which in ("", "TRACES_"))


def default_of(item: Field[Any]) -> Any:
    return None if item.default is MISSING else item.default


def use_one_thread_for_numpy() -> None:
    """To be called before NumPy is loaded, which takes this from nowhere else: on a busy machine its threads wait for
    each other five times as long as they work."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
