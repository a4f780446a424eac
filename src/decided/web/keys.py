"""The API keys, whose each is, and the one check of a request's Authorization header."""

import codecs
import hashlib
import hmac
import re
from pathlib import Path
from typing import NamedTuple

from decided.engines.api import NOBODY, Caller
from decided.errors import SettingsError, Unauthorized
from decided.settings import Settings

DEFAULT_CLIENT = "default"
"""The client of a key without a name."""
_NAME = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_HASHED = b"sha256:"
_LEAST_BASE64 = 24  # 16 bytes


class Key(NamedTuple):
    """What is kept of a key, and who has it. Digests have one length, so a comparison tells nothing of a key's."""

    digest: bytes
    caller: Caller


class Keys:
    """The keys that are accepted. With none configured, every request is."""

    def __init__(self, settings: Settings) -> None:
        if settings.api_key and settings.api_key_file:
            raise SettingsError("SERVICE_API_KEY and SERVICE_API_KEY_FILE are both set: use one of them")
        self._file = settings.api_key_file
        self._keys = [Key(_digest(settings.api_key.encode()), NOBODY)] if settings.api_key else []
        if self._file:
            self._keys = _read(self._file)

    @property
    def required(self) -> bool:
        return bool(self._keys)

    @property
    def named(self) -> bool:
        """Whether requests have a client: those with the keys of a file do."""
        return self._file is not None

    @property
    def clients(self) -> set[str]:
        return {key.caller.client for key in self._keys}

    def reload(self) -> bool:
        """Read the key file again. Raises, and keeps the keys it has, when the file is no good."""
        if self._file is None:
            return False
        self._keys = _read(self._file)
        return True

    def check(self, authorization: bytes | None) -> Caller:
        """Who asks, or 401. Every key is compared, on bytes and in constant time."""
        if not self._keys:
            return NOBODY
        scheme, _, token = (authorization or b"").partition(b" ")
        digest = _digest(token.strip())
        callers = [caller for known, caller in self._keys if hmac.compare_digest(digest, known)]
        if scheme.lower() != b"bearer" or not callers:
            raise Unauthorized
        return callers[0]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _read(path: Path) -> list[Key]:
    try:
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines()
    except OSError as error:
        raise SettingsError(f"SERVICE_API_KEY_FILE {path} cannot be read: {error.strerror}") from None
    keys: dict[bytes, Key] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            key = _key(number, line.strip())
            if keys.setdefault(key.digest, key).caller != key.caller:
                raise SettingsError(f"SERVICE_API_KEY_FILE, line {number}: another name has the same key")
    if not keys:
        raise SettingsError("SERVICE_API_KEY_FILE contains no key: put one key on each line")
    return list(keys.values())


def _key(number: int, line: bytes) -> Key:
    name, key = DEFAULT_CLIENT, line
    if _has_name(line):
        before, _, key = line.partition(b"=")
        if not _NAME.fullmatch(before):
            raise SettingsError(
                f"SERVICE_API_KEY_FILE, line {number}: what stands before the = is not a name: "
                "a name has up to 64 letters, digits, '.', '_' and '-'"
            )
        name, key = before.decode(), key.strip()
        if not key.strip(b"="):
            raise SettingsError(f"SERVICE_API_KEY_FILE, line {number}: there is no key after the =")
    if not key.startswith(_HASHED):
        return Key(_digest(key), Caller(name))
    try:
        digest = bytes.fromhex(key.removeprefix(_HASHED).decode())
    except ValueError:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise SettingsError(f"SERVICE_API_KEY_FILE, line {number}: after sha256: must come 64 hexadecimal digits")
    return Key(digest, Caller(name))


def _has_name(line: bytes) -> bool:
    """Whether it is NAME=KEY. Base64 may end with `=`, too; but a name whose key is missing, as when a variable was
    empty, must not become a key."""
    if b"=" in line.rstrip(b"="):
        return True
    return line.endswith(b"=") and not (len(line) >= _LEAST_BASE64 and len(line) % 4 == 0)
