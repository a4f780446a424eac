"""The API keys, and the one check of a request's Authorization header."""

import hmac
from pathlib import Path

from decided.errors import SettingsError, Unauthorized
from decided.settings import Settings


class Keys:
    """The keys that are accepted. With none configured, every request is."""

    def __init__(self, settings: Settings) -> None:
        if settings.api_key and settings.api_key_file:
            raise SettingsError("SERVICE_API_KEY and SERVICE_API_KEY_FILE are both set: use one of them")
        self._file = settings.api_key_file
        self._keys = [settings.api_key.encode()] if settings.api_key else []
        if self._file:
            self._keys = _read(self._file)

    @property
    def required(self) -> bool:
        return bool(self._keys)

    def reload(self) -> bool:
        """Read the key file again. Raises, and keeps the keys it has, when the file is no good."""
        if self._file is None:
            return False
        self._keys = _read(self._file)
        return True

    def check(self, authorization: bytes | None) -> None:
        """Pass, or 401. Every key is compared, on bytes and in constant time."""
        if not self._keys:
            return
        scheme, _, token = (authorization or b"").partition(b" ")
        token = token.strip()
        matches = [hmac.compare_digest(token, key) for key in self._keys]
        if scheme.lower() != b"bearer" or not any(matches):
            raise Unauthorized


def _read(path: Path) -> list[bytes]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise SettingsError(f"SERVICE_API_KEY_FILE cannot be read: {error.strerror}") from None
    keys = [line.strip() for line in lines if line.strip()]
    if not keys:
        raise SettingsError("SERVICE_API_KEY_FILE contains no key: put one key on each line")
    return keys
