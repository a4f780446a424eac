"""Everything that can go wrong, as one tree. The status a client sees sits on the class.

DecidedError                     500  internal server error
├── Unreadable                   400  the body cannot be read as a JSON object
├── Unauthorized                 401  no key, or a wrong one
├── NotFound                     404  no such path
│   └── UnknownRequest           404  an outcome of a request that is not, or no longer, known
├── MethodNotAllowed             405  the path exists, the method does not
├── BodyTooLarge                 413  more bytes than the body limit, received or decoded
├── UnsupportedMedia             415  an encoding or a media type this service does not read
├── Invalid                      422  read, understood, refused
├── InferenceFailed              500  the model failed on this request
├── Unavailable                  503  the model cannot answer at all
│   ├── AtCapacity               503  every place is taken; try again in a second
│   └── EngineBusy               503  the remote engine has no place; try again in a second
└── TimedOut                     504  no answer within the time limit

StartError                            the process ends before it listens
├── SettingsError             exit 2  a setting is out of range
├── InputError                exit 2  a file that a command was given cannot be used
├── ModelError                exit 3  the model cannot be loaded
└── BindError                 exit 4  the address cannot be listened on

DeviceLost                            the model can never run again: the inference worker stops, and then (exit 5)
                                      the process
"""

import json
from typing import ClassVar

Headers = tuple[tuple[bytes, bytes], ...]

_IN_A_SECOND: Headers = ((b"retry-after", b"1"),)


class DecidedError(Exception):
    """An error with a place in the contract. Its message is sent to the client as `detail`."""

    status: ClassVar[int] = 500
    headers: ClassVar[Headers] = ()
    refusal: ClassVar[str] = ""
    """What the metrics call it, where the service refused to work on the request or gave it up."""

    @property
    def detail(self) -> str:
        return str(self)

    @property
    def in_full(self) -> str:
        """For whoever runs the model, and may know more than a client."""
        return str(self)


class Unreadable(DecidedError):
    status = 400
    refusal = "unreadable"


class Unauthorized(DecidedError):
    status = 401
    refusal = "unauthorized"
    headers = ((b"www-authenticate", b"Bearer"),)

    def __init__(self) -> None:
        super().__init__("missing or wrong API key: send the header 'Authorization: Bearer <API_KEY>'")


class NotFound(DecidedError):
    status = 404

    def __init__(self) -> None:
        super().__init__("not found: see /openapi.json for the paths of this service")


class UnknownRequest(DecidedError):
    status = 404

    def __init__(self, request_id: str) -> None:
        quoted = json.dumps(request_id, ensure_ascii=False)
        super().__init__(
            f"no answer with the request id {quoted} is remembered: outcomes are accepted for a limited time"
        )


class MethodNotAllowed(DecidedError):
    status = 405

    def __init__(self, allowed: str) -> None:
        super().__init__(f"method not allowed: use {allowed}")
        self.allowed = allowed


class BodyTooLarge(DecidedError):
    status = 413
    refusal = "too_large"

    def __init__(self, limit: int, what: str = "is larger") -> None:
        super().__init__(f"the body {what} than {limit} bytes")


class UnsupportedMedia(DecidedError):
    status = 415
    refusal = "unsupported"


class Invalid(DecidedError):
    status = 422
    refusal = "invalid"


class InferenceFailed(DecidedError):
    """The reason is for the log; the client learns only that it failed."""

    def __init__(self, reason: str) -> None:
        super().__init__("inference failed")
        self.reason = reason

    @property
    def in_full(self) -> str:
        return f"{self}: {self.reason}"


class Unavailable(DecidedError):
    status = 503
    refusal = "unavailable"


class AtCapacity(Unavailable):
    refusal = "at_capacity"
    headers = _IN_A_SECOND

    def __init__(self, held: int = 0) -> None:
        """`held` is how many places the client has, where those that are free are kept for others."""
        why = "the server is over capacity"
        if held:
            requests = "1 request" if held == 1 else f"{held} requests"
            why = f"your key has {requests} under way, and the other places are kept for other keys"
        super().__init__(f"{why}: try again in a second")


class EngineBusy(Unavailable):
    headers = _IN_A_SECOND

    def __init__(self) -> None:
        super().__init__("the remote engine is busy: try again in a second")


class TimedOut(DecidedError):
    status = 504
    refusal = "timed_out"

    def __init__(self, seconds: float, what: str = "no answer") -> None:
        super().__init__(f"{what} within {seconds:g} s")
        self.seconds = seconds


class DeviceLost(Exception):
    """No run can succeed any more, whatever is asked: after some errors a GPU refuses a process everything."""


class StartError(Exception):
    """The service cannot start. The message tells the operator what to change."""

    exit_code: ClassVar[int] = 1


class SettingsError(StartError):
    exit_code = 2


class InputError(StartError):
    exit_code = 2


class ModelError(StartError):
    exit_code = 3


class BindError(StartError):
    exit_code = 4


WORKER_LOST_EXIT_CODE = 5
"""Of a process that served, and whose inference worker stopped or got stuck for good."""
