"""What a client sends to a System One server and how it reads the replies: all of the client but the network."""

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from decided.contract.types import (
    MAX_STATES,
    BatchLineProblem,
    ChoiceAnswer,
    ModelEntry,
    ModelList,
    NoulAnswer,
    Question,
    ScoreAnswer,
    SingleResponse,
    encode,
)
from decided.retries import Backoff, retry_after_seconds

Questions = Mapping[str, Question | dict[str, Any]]
"""By name: typed, or as they stand in a request."""

NO_ADDRESS = "base_url must be an address such as http://127.0.0.1:8000"
SINGLE, BATCH, MODELS = "/v1/systemone", "/v1/systemone/batch", "/v1/models"

_CODES = {
    400: "unreadable", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "not_found", 413: "too_large",
    415: "unsupported", 422: "invalid", 429: "at_capacity", 503: "unavailable", 504: "timed_out",
}  # fmt: skip
_LATER = frozenset({429, 503})  # what may be asked again after a while
_TOO_MUCH = frozenset({413, 500, 504})  # what may have been too much at a time
_OF_ONE_STATE = _TOO_MUCH | {422}
_CHUNK_BYTES = 2**19  # half of what a server takes by default
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 30.0
_BINARY = (bytes, bytearray, memoryview)
_AT_FAULT = re.compile(r"question|state(?:s\[(\d+)\])?")  # the first counts: what is quoted after it may hold any word


A = TypeVar("A")
D = TypeVar("D")


class ClientError(Exception):
    """No answer. `status` is that of the server's reply, 0 if there was none; `code` says the same as a word."""

    def __init__(self, status: int, code: str, message: str, request_id: str = "", retry_after: str = "") -> None:
        super().__init__(f"{status or code}: {message}" + (f" (request {request_id})" if request_id else ""))
        self.status = status
        self.code = code
        self.message = message
        self.request_id = request_id
        self.retry_after = retry_after


class Response(SingleResponse, frozen=True, omit_defaults=True):
    """The answers to the questions about one state."""

    request_id: str = ""

    def choice(self, name: str) -> ChoiceAnswer:
        return self._of(ChoiceAnswer, name)

    def score(self, name: str) -> ScoreAnswer:
        return self._of(ScoreAnswer, name)

    def noul(self, name: str) -> NoulAnswer:
        return self._of(NoulAnswer, name)

    def _of(self, kind: type[A], name: str) -> A:
        found = self.answers[name]
        if not isinstance(found, kind):
            raise TypeError(f"the answer to {name!r} is a {type(found).__name__}, not a {kind.__name__}")
        return found


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What came of one state of a batch: `index` is its place among the states, one of the others is None."""

    index: int
    response: Response | None
    error: ClientError | None

    def answered(self) -> Response:
        """The response; or the error is raised."""
        if self.response is None:
            raise self.error or ClientError(0, "no_answer", "there is neither a response nor an error")
        return self.response


class ServerReply(NamedTuple):
    """What came back from the server."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def request_id(self) -> str:
        return self.headers.get("x-request-id") or self.headers.get("x-typesafe-request-id") or ""

    def checked(self) -> bytes:
        """The content of a success; else the error is raised."""
        if self.status == 200:
            return self.content
        try:
            said = msgspec.json.decode(self.content)
            message = said["detail"] if isinstance(said["detail"], str) else encode(said["detail"]).decode()
        except (ValueError, KeyError, TypeError, RecursionError):
            message = f"the server answered {self.status}"
        raise failure(self.status, message, self.request_id, self.headers.get("retry-after", ""))


def failure(status: int, message: str, request_id: str = "", retry_after: str = "") -> ClientError:
    code = _CODES.get(status, "failed" if status >= 500 else "refused")
    return ClientError(status, code, message, request_id, retry_after)


def lost(error: Exception, timed_out: bool) -> ClientError:
    """A request that got no reply. Only one that may not have been worked on is asked again."""
    code = "timed_out" if timed_out else "unreachable"
    return ClientError(0, code, str(error) or type(error).__name__)


def address(base_url: str) -> str:
    """The base address, however much of the path was given with it."""
    if not isinstance(base_url, str) or not base_url.startswith(("http://", "https://")):
        raise ValueError(NO_ADDRESS)
    return base_url.rstrip("/").removesuffix("/systemone").removesuffix("/v1")


def origin(base_url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port: who a key is for."""
    parts = urlsplit(base_url)
    return parts.scheme, parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def headers(api_key: str | None) -> dict[str, str]:
    common = {"Content-Type": "application/json", "User-Agent": "decided-client"}
    if api_key is None or api_key == "":
        return common
    if not isinstance(api_key, str) or not (api_key.isascii() and api_key.isprintable() and api_key == api_key.strip()):
        raise ValueError("api_key must be printable ASCII text without white space around it")
    return {**common, "Authorization": f"Bearer {api_key}"}


def single(model: str | None, state: Any, questions: Questions, explain: bool = False) -> bytes:
    return b"{" + shared(model, questions, explain) + b'"state":' + _encoded(state, "the state") + b"}"


def shared(model: str | None, questions: Questions, explain: bool) -> bytes:
    """The beginning of a request, up to what it is about."""
    named = b'"model":' + _encoded(model, "the model") + b"," if model else b""
    asked = b'"questions":' + _encoded(questions, "the questions") + b","
    return named + (b'"explain":true,' if explain else b"") + asked


def _encoded(value: object, what: str) -> bytes:
    """The value as JSON. A text may hold what UTF-8 cannot say: half of a pair of surrogates, or, in Python, a byte
    that was no text where it came from. Bytes and NaN, which msgspec makes base64 and null of, are not JSON either."""
    try:
        if not isinstance(value, str):
            json.dumps(msgspec.to_builtins(value, builtin_types=_BINARY), allow_nan=False)
        return encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ClientError(0, "unreadable", f"{what} cannot be sent: {error}") from None


def models(reply: ServerReply) -> list[ModelEntry]:
    return _decode_as(reply.checked(), ModelList, reply.request_id).models


def response(content: bytes | dict[str, Any], request_id: str) -> Response:
    """The response in the content. What other servers of the protocol leave out is made from what they say."""
    try:
        whole = msgspec.json.decode(content) if isinstance(content, bytes) else content
        for answer in whole["answers"].values():
            if answer["type"] == "noul":
                yes = answer["noul"]
                answer.setdefault("probabilities", {"true": yes, "false": 1 - yes})
                answer.setdefault("confidence", abs(2 * yes - 1))
            elif answer["type"] == "score" and "level" not in answer:
                answer["level"] = int(max(answer["probabilities"], key=answer["probabilities"].__getitem__))
        return msgspec.convert({**whole, "request_id": request_id}, Response)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise invalid_response(error, request_id) from None


def _decode_as(content: bytes, kind: type[D], request_id: str) -> D:
    try:
        return msgspec.json.decode(content, type=kind)
    except (ValueError, RecursionError) as error:  # what msgspec raises is a ValueError
        raise invalid_response(error, request_id) from None


def invalid_response(error: Exception, request_id: str = "") -> ClientError:
    return ClientError(0, "invalid_response", f"not a System One response: {error}", request_id)


class Tries:
    """How often, and after which pauses, a request is tried again."""

    def __init__(self, retries: int) -> None:
        self._retries = self._left = retries
        self._backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)

    def reset(self) -> None:
        """There was progress."""
        self._left = self._retries
        self._backoff.reset()

    def pause_after(self, error: ClientError) -> float:
        """How many seconds to wait before the next try; or the error is raised, because there is none."""
        asked = retry_after_seconds(error.retry_after)
        hopeless = error.status not in _LATER and error.code != "unreachable"
        if hopeless or self._left < 1 or asked > _LONGEST_PAUSE_S:
            raise error
        self._left -= 1
        return self._backoff.next(asked)


class Chunk:
    """Some states of a batch, asked in one request."""

    def __init__(self, plan: "BatchPlan", entries: list[tuple[int, bytes]]) -> None:
        self.path = SINGLE if plan.one_by_one else BATCH
        self.waiting = dict(entries)
        self.settled = 0
        self.problem: ClientError | None = None
        self._numbers = [number for number, _ in entries]
        self._torn = b""
        joined = b",".join(state for _, state in entries)
        states = b'"state":' + joined if plan.one_by_one else b'"states":[' + joined + b"]"
        self.body = b"{" + plan.shared + states + b"}"

    def take_whole(self, reply: ServerReply) -> Iterator[BatchResult]:
        """A reply that is no stream: one response, or those to all states."""
        content = _decode_as(reply.checked(), dict[str, Any], reply.request_id)
        results = [content] if self.path == SINGLE else content.get("results")
        if not isinstance(results, list) or len(results) != len(self._numbers):
            raise invalid_response(ValueError("there must be one result per state"), reply.request_id)
        for number, result in zip(self._numbers, results, strict=True):
            yield self._settle(number, response(result, reply.request_id))

    def take_part(self, part: bytes, request_id: str) -> Iterator[BatchResult]:
        """A part of a stream, wherever it is cut."""
        *lines, self._torn = (self._torn + part).split(b"\n")
        for line in lines:
            yield from self._take_line(line, request_id)

    def _take_line(self, line: bytes, request_id: str) -> Iterator[BatchResult]:
        content = _decode_as(line, dict[str, Any], request_id)
        index = content.pop("index", None)
        if not isinstance(index, int) or not 0 <= index < len(self._numbers):
            raise invalid_response(ValueError("a line has no index"), request_id)
        number = self._numbers[index]
        if number not in self.waiting:
            return
        if "detail" not in content:
            yield self._settle(number, response(content, request_id))
            return
        try:
            problem = msgspec.convert({"index": index, **content}, BatchLineProblem)
        except msgspec.ValidationError as wrong:
            raise invalid_response(wrong, request_id) from None
        error = failure(problem.status, problem.detail, request_id)
        if problem.status in _LATER or problem.status == 504:  # the plan asks once more
            self.problem = error
        else:
            yield self._settle(number, error)

    def guilty(self, error: ClientError) -> int | None:
        """The state for which the server refuses the whole request: the one that it names, or the only one, unless it
        names a question, which it would refuse with any state."""
        named = _AT_FAULT.search(error.message) if error.status == 422 else None
        if named and named[1]:
            place = int(named[1])
            return self._numbers[place] if place < len(self._numbers) else None
        alone = len(self.waiting) == 1 and not self.settled
        of_questions = named is not None and named[0] == "question"
        return next(iter(self.waiting)) if alone and error.status in _OF_ONE_STATE and not of_questions else None

    def give_up(self, number: int, error: ClientError) -> BatchResult:
        """What the server says of the request is said of the state: how they went out together is nobody's concern."""
        said = error.message
        if error.status == 413:
            said = f"state is too long for the server: {said}"
        elif (named := _AT_FAULT.search(said)) and named[1]:
            said = said.replace(named[0], "state", 1)
        return self._settle(number, failure(error.status, said, error.request_id, error.retry_after))

    def _settle(self, number: int, found: Response | ClientError) -> BatchResult:
        del self.waiting[number]
        self.settled += 1
        return BatchResult(number, *((found, None) if isinstance(found, Response) else (None, found)))


class BatchPlan:
    """A batch of any length, cut into requests that the server can take. No state is asked again once it is settled."""

    def __init__(
        self, model: str | None, states: Iterable[Any], questions: Questions, retries: int, explain: bool = False
    ) -> None:
        self.shared = shared(model, questions, explain)
        self.one_by_one = False
        self.tries = Tries(retries)
        self._states = enumerate(states)
        self._again: deque[tuple[int, bytes]] = deque()
        self._late: list[BatchResult] = []
        self._size = MAX_STATES

    def chunk(self) -> Chunk | None:
        """The states to ask next; none when all are settled."""
        entries: list[tuple[int, bytes]] = []
        size = len(self.shared)
        limit = 1 if self.one_by_one else self._size
        while len(entries) < limit and (entry := self._next()) is not None:
            size += len(entry[1])
            if entries and size > _CHUNK_BYTES:
                self._again.appendleft(entry)
                break
            entries.append(entry)
        return Chunk(self, entries) if entries else None

    def _next(self) -> tuple[int, bytes] | None:
        if self._again:
            return self._again.popleft()
        for number, state in self._states:
            try:
                return number, _encoded(state, "the state")
            except ClientError as error:
                self._late.append(BatchResult(number, None, error))
        return None

    def late(self) -> list[BatchResult]:
        """The results that came of no reply, each given once."""
        found, self._late = self._late, []
        return found

    def after(self, chunk: Chunk, error: ClientError | None) -> float:
        """A request has ended. What it left open is asked again: returns after how many seconds. Results that come of
        it are `late`; an error that concerns all states is raised."""
        error = error or chunk.problem
        if error is None and chunk.waiting:
            error = ClientError(0, "unreachable", "the stream ended before every state had its line")
        if chunk.settled:
            self.tries.reset()
        if error is None:  # what was too much a while ago may not be now; but not at once, since a 504 costs its time
            self._size = min(MAX_STATES, self._size + max(1, self._size // 8))
        pause = self._pause(chunk, error) if error is not None else 0.0
        self._again.extendleft(reversed(chunk.waiting.items()))
        return pause

    def _pause(self, chunk: Chunk, error: ClientError) -> float:
        if chunk.path == BATCH and error.status in (404, 405):  # a server of the protocol need not have batches
            self.one_by_one = True
            return 0.0
        guilty = chunk.guilty(error)
        if guilty is not None:
            self._late.append(chunk.give_up(guilty, error))
            return 0.0
        if error.status in _TOO_MUCH:  # with fewer states in a request it goes, or shows which one it was
            self._size = max(1, chunk.settled or len(chunk.waiting) // 2)
            return 0.0
        return self.tries.pause_after(error)
