"""The audit log of a server: decisions go in on the event loop, a thread writes them down.

    event loop --decisions--> thread: all that wait, one write, one sync --written, or why not--> event loop

Load makes the group: what comes while the disk works is in the next one. Where the log is required an answer waits for
its line; else the loop goes on, and what cannot be written is counted.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from decided.audit.appender import Appender
from decided.audit.line import Decision, Scribe
from decided.errors import InputError, Unavailable

log = logging.getLogger("decided.audit")

MOST_WAITING_BYTES = 64 * 2**20
"""That wait for the disk while nobody waits for them; what comes then is lost."""
_CLOSE_WAIT_S = 10.0
_TRIAL_WAIT_S = 1.0
"""That a probe is made to wait for a disk that does not answer."""
_LEAST_KEY_BYTES = 16
_LINE_BYTES = 1000


class _Group(NamedTuple):
    """The decisions of one call, and who waits until they are written. Without any it tries whether they could be."""

    decisions: Sequence[Decision]
    waiting: "asyncio.Future[None] | None"
    lines: int
    size: int


class AuditLog:
    """Written by one thread. All that is not said to be the thread's belongs to the event loop."""

    def __init__(self, path: Path, scribe: Scribe, required: bool, max_bytes: int, timeout_s: float) -> None:
        self.written = 0
        self.lost = 0
        self._required = required
        self._timeout_s = timeout_s
        self._scribe = scribe
        self._appender = Appender(path, max_bytes)
        self._inbox: SimpleQueue[_Group | str] = SimpleQueue()
        self._waiting_bytes = 0
        self._failing = False
        self._trial: asyncio.Future[Any] | None = None
        self._dropped = 0  # lines for which there was no room to wait
        self._failed = self._told = 0  # thread: lines that could not be written; lost ones that the log tells of
        self._loop = asyncio.get_running_loop()
        try:
            self._tell("opened", cut_bytes=self._appender.cut_bytes)
        except OSError as error:
            self._appender.close()
            raise InputError(f"--audit-log {path} cannot be written: {error.strerror or error}") from None
        if self._appender.cut_bytes:
            log.warning("removed an unfinished line of %d bytes from %s", self._appender.cut_bytes, path)
        self._thread = threading.Thread(target=self._write_forever, name="decided-audit", daemon=True)
        self._thread.start()

    async def record(self, decisions: Sequence[Decision]) -> None:
        """Write down decisions. Where that is required, returns when they are on the disk, or raises Unavailable."""
        lines = sum(len(decision.answers) for decision in decisions)
        size = sum(len(decision.state) for decision in decisions) + _LINE_BYTES * lines
        if not self._required:
            if self._waiting_bytes + size > MOST_WAITING_BYTES:
                self._dropped += lines
                self.lost += lines
            else:
                self._put(_Group(decisions, None, lines, size))
            return
        waiting = self._loop.create_future()
        self._put(_Group(decisions, waiting, lines, size))
        try:
            await asyncio.wait_for(waiting, self._timeout_s)
        except TimeoutError:
            self._note(TimeoutError("the disk does not answer"))
            raise Unavailable("the audit log cannot be written: the disk does not answer") from None

    async def check(self) -> None:
        """Raise Unavailable while answers cannot be sent because nothing can be written. A log that failed is tried
        again here: a server that is not ready is asked nothing else, so no decision would find out."""
        if not (self._required and self._failing):
            return
        if self._trial is None or self._trial.done():
            self._trial = asyncio.gather(self.record(()), return_exceptions=True)
        await asyncio.wait([self._trial], timeout=_TRIAL_WAIT_S)
        if self._failing:
            raise Unavailable("the audit log cannot be written")

    def lines(self) -> tuple[int, int]:
        """How many were written, and how many lost."""
        return self.written, self.lost

    def reopen(self) -> None:
        """The file was moved away: go on in a new one with its name."""
        self._inbox.put("reopen")

    async def close(self) -> None:
        """Write what waits, and let go."""
        self._inbox.put("close")
        await asyncio.to_thread(self._thread.join, _CLOSE_WAIT_S)

    def _put(self, group: _Group) -> None:
        self._waiting_bytes += group.size
        self._inbox.put(group)

    def _settle(self, groups: Sequence[_Group], error: Exception | None) -> None:
        for group in groups:
            self._waiting_bytes -= group.size
            if error is None:
                self.written += group.lines
            elif not self._required:
                self.lost += group.lines
            if group.waiting is not None and not group.waiting.done():
                if error is None:
                    group.waiting.set_result(None)
                else:
                    group.waiting.set_exception(Unavailable("the audit log cannot be written"))
        self._note(error)

    def _note(self, error: Exception | None) -> None:
        if error is not None and not self._failing:
            log.error("the audit log cannot be written: %s", error, exc_info=not isinstance(error, OSError))
        elif error is None and self._failing:
            log.info("the audit log can be written again")
        self._failing = error is not None

    # --- the thread ---

    def _write_forever(self) -> None:
        while True:
            messages = _drain(self._inbox)
            groups = [message for message in messages if isinstance(message, _Group)]
            if groups:
                error = self._write(groups)
                with contextlib.suppress(RuntimeError):  # the loop has ended, and with it everyone who waited
                    self._loop.call_soon_threadsafe(self._settle, groups, error)
            if "reopen" in messages:
                self._reopen()
            if "close" in messages:
                self._appender.close()
                return

    def _write(self, groups: Sequence[_Group]) -> Exception | None:
        """All of them, or none and why."""
        head = self._appender.head
        lines: list[bytes] = []
        lost = self._dropped + self._failed
        try:
            if lost > self._told:
                head, line = self._scribe.tell(head, time.time(), "lost", lost=lost - self._told)
                lines.append(line)
            for group in groups:
                for decision in group.decisions:
                    head, of_decision = self._scribe.write(head, decision)
                    lines += of_decision
            if lines:
                self._appender.append(b"".join(lines), head)
            else:
                self._appender.try_out()
        except Exception as error:
            if not self._required:
                self._failed += sum(group.lines for group in groups)
            return error
        self._told = lost
        return None

    def _reopen(self) -> None:
        try:
            if self._appender.reopen():
                self._tell("opened")
                log.info("audit log reopened")
        except (InputError, OSError) as error:
            log.error("the audit log was not reopened: %s", error)

    def _tell(self, event: str, cut_bytes: int = 0) -> None:
        head, line = self._scribe.tell(self._appender.head, time.time(), event, cut_bytes=cut_bytes)
        self._appender.append(line, head)


def _drain(inbox: "SimpleQueue[_Group | str]") -> list[_Group | str]:
    """All messages there are, and at least one."""
    messages = [inbox.get()]
    try:
        while True:
            messages.append(inbox.get_nowait())
    except Empty:
        return messages


def read_key(path: Path) -> bytes:
    """The key of the HMACs, without the white space around it."""
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise InputError(f"--audit-key-file {path} cannot be read: {error.strerror or error}") from None
    if len(key) < _LEAST_KEY_BYTES:
        raise InputError(
            f"--audit-key-file {path} must hold at least {_LEAST_KEY_BYTES} bytes: "
            f"make one with `openssl rand -hex 32 > {path.name}`"
        )
    return key
