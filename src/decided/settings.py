"""All settings, in one frozen object, built once and passed by argument.

Each field is a flag `--its-name` and an environment variable `SERVICE_ITS_NAME`; the flag wins. Secrets are the
exception: a key on a command line is a key in every process list, so those are environment variables alone.
"""

import ipaddress
import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

from decided.contract.temperature import Temperatures, read_temperatures
from decided.errors import SettingsError

PREFIX = "SERVICE_"
_ALIKE = 0.85

Dtype = Literal["auto", "float32", "bfloat16", "float16", "int8"]
Device = Literal["auto", "cpu", "cuda", "mps"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
Audit = Literal["required", "best-effort"]


def _setting(
    default: Any,
    about: str,
    read: Callable[[str], Any],
    metavar: str = "VALUE",
    secret: bool = False,
    serve_only: bool = False,
    values: tuple[Any, ...] = (),
) -> Any:
    """`serve_only` is what no other command takes; `values`, where they are few, are all that there are."""
    told = {"about": about, "read": read, "metavar": metavar, "values": values}
    return field(default=default, metadata=told | {"secret": secret, "serve_only": serve_only})


def _one_of(kind: Any, default: str, about: str, serve_only: bool = False) -> Any:
    """One of the words of a Literal."""
    words = get_args(kind)

    def read(value: str) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return value

    return _setting(default, about, read, f"{{{','.join(words)}}}", serve_only=serve_only, values=words)


def _switch(default: bool, about: str, serve_only: bool = False) -> Any:
    return _setting(default, about, _on_or_off, "{on,off}", serve_only=serve_only, values=(True, False))


def _on_or_off(value: str) -> bool:
    if value not in ("on", "off"):
        raise ValueError("must be one of on, off")
    return value == "on"


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


def _number(of: str, low: float, high: float, below: bool = False) -> Callable[[str], float]:
    message = f"must be a number{of} from {low:g} to {'below ' if below else ''}{high:g}"

    def read(value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            raise ValueError(message) from None
        if not low <= number <= high or (below and number == high):
            raise ValueError(message)
        return number

    return read


def _seconds(low: float, high: float) -> Callable[[str], float]:
    return _number(" of seconds", low, high)


def read_share(low: float = 0.0, below_one: bool = False) -> Callable[[str], float]:
    return _number("", low, 1, below_one)


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
        "MODEL",
    )
    revision: str | None = _setting(
        None, "branch, tag or commit of a model on the Hub (default: its newest)", _text, "REVISION"
    )
    trust_remote_code: bool = _switch(
        False, "run code that came with the model, and read weights in formats that can run code"
    )
    host: str = _setting(
        "0.0.0.0", "address to listen on; 127.0.0.1 for this machine only", _text, "HOST", serve_only=True
    )
    port: int = _setting(
        8000, "port to listen on; 0 takes a free one and logs it", _whole(0, 65535), "PORT", serve_only=True
    )
    max_in_flight: int = _setting(
        256, "requests served at a time; one more gets 503 at once", _whole(1, 100_000), "N", serve_only=True
    )
    max_connections: int = _setting(
        10_000,
        "connections open at a time; one more gets 503 and is closed",
        _whole(1, 1_000_000),
        "N",
        serve_only=True,
    )
    request_timeout_s: float = _setting(
        30.0,
        "seconds from admission to answer, reading the body included; then 504",
        _seconds(0.001, 86_400),
        "SECONDS",
    )
    worker_grace_s: float = _setting(
        5.0,
        "seconds until a process whose inference worker has stopped or is stuck ends, with exit code 5; 0 keeps it",
        _seconds(0, 86_400),
        "SECONDS",
        serve_only=True,
    )
    max_body_bytes: int = _setting(
        2**20, "largest request body, as received and as decoded; more gets 413", _whole(1, 2**30), "N", serve_only=True
    )
    threads: int | None = _setting(
        None, "CPU threads of the model, at most the cores it may use (default: all of them)", _whole(1, 4096), "N"
    )
    dtype: Dtype = _one_of(Dtype, "auto", "numeric precision")
    device: Device = _one_of(Device, "auto", "where the model runs")
    small_batch: int | None = _setting(
        None, "questions per forward pass, for some GPU models (default: the model's own)", _whole(1, 65_536), "N"
    )
    page: bool = _switch(True, "serve the playground, a page for people, at /", serve_only=True)
    log_level: LogLevel = _one_of(LogLevel, "info", "how much is logged; info has one line per request")
    log_format: LogFormat = _one_of(LogFormat, "text", "text for people, json for machines")
    temperature: Temperatures = _setting(
        Temperatures(),
        "how much probabilities are softened (above 1) or sharpened: one number, one per type (choice=1.2,noul=0.9), "
        "or a file that `decided calibrate` wrote",
        read_temperatures,
    )
    profiles: Path | None = _setting(None, "a folder of profiles that `decided teach` wrote", _path, "FOLDER")
    outcomes: Path | None = _setting(
        None,
        "a file for outcomes that clients tell at /v1/outcomes, for `decided teach --outcomes` (default: off)",
        _path,
        "FILE",
        serve_only=True,
    )
    keep_texts: bool = _switch(
        False, "keep the texts beside their outcomes; off keeps what the model made of them", serve_only=True
    )
    audit_log: Path | None = _setting(
        None,
        "a file for the record of every decision, see docs/audit.md (default: off)",
        _path,
        "FILE",
        serve_only=True,
    )
    audit: Audit = _one_of(
        Audit,
        "required",
        "required sends an answer only when it is in the audit log; best-effort sends it anyway, and counts losses",
        serve_only=True,
    )
    audit_key_file: Path | None = _setting(
        None,
        "a file with the key of the hashes that stand for states in the audit log",
        _path,
        "FILE",
        serve_only=True,
    )
    audit_max_bytes: int = _setting(
        2**28,
        "size from which the audit log is put aside as FILE.000001 and so on",
        _whole(4096, 2**40),
        "N",
        serve_only=True,
    )
    shadow: str | None = _setting(
        None,
        "a second model that is asked too, while nobody waits, to be compared; never sent",
        _text,
        "MODEL",
        serve_only=True,
    )
    shadow_share: float = _setting(
        0.05, "the share of the answers that the second model is asked for", read_share(), "SHARE", serve_only=True
    )
    shadow_log: Path | None = _setting(
        None,
        "a file for what the two models disagree on, texts included, for `decided eval`",
        _path,
        "FILE",
        serve_only=True,
    )
    remote_url: str | None = _setting(None, "address of the remote engine, for models served by one", _text, "URL")
    remote_concurrency: int = _setting(64, "calls to the remote engine at a time", _whole(1, 10_000), "N")
    rotations: int = _setting(
        1,
        "orders of the options to average over where the top two are close, with a language model",
        _whole(1, 26),
        "N",
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

    def __post_init__(self) -> None:
        """Who makes them in Python may have taken `page` for a text: a wrong word must not switch anything silently."""
        for item in all_settings():
            values = item.metadata["values"]
            if values and getattr(self, item.name) not in values:
                raise SettingsError(f"{item.name} must be one of {values}, not {getattr(self, item.name)!r}")

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


def misspelt(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that nothing reads, and what was probably meant: without a word, a key would be none."""
    names = [variable(item) for item in all_settings()]
    found: dict[str, str] = {}
    for name in os.environ if environment is None else environment:
        if name.startswith(PREFIX) and name not in names and (near := get_close_matches(name, names, 1, _ALIKE)):
            found[name] = near[0]
    return found


def exports_traces() -> bool:
    """Whether the environment names a collector for traces, by the names that all programs have for it."""
    return any(os.environ.get(f"OTEL_EXPORTER_OTLP_{which}ENDPOINT") for which in ("", "TRACES_"))


def default_of(item: Field[Any]) -> Any:
    return None if item.default is MISSING else item.default


def in_words(value: Any) -> str:
    """A value as a flag takes it."""
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


def use_one_thread_for_numpy() -> None:
    """To be called before NumPy is loaded, which takes this from nowhere else: on a busy machine its threads wait for
    each other five times as long as they work."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
