"""The front door: what was given into settings, settings into one of the commands, errors into exit codes.

Nothing heavy is imported before `main` is under way, so that Ctrl-C ends it quietly from the start.
"""

import errno
import os
import signal
import sys
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

INTERRUPTED = 130
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main(arguments: Sequence[str] | None = None) -> int:
    """The `decided` command."""
    try:
        _open_standard_streams()
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()  # or Python does it at the very end, and has no good words for what goes wrong
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # who read the output has had enough
        _discard_output()
        return 0
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _discard_output()
        print(f"decided: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 2


def _open_standard_streams() -> None:
    """A standard stream that is closed is opened on nothing. Else its number goes to the next file or socket, which is
    then read from or printed to, and which the event loop refuses to close."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it takes the lowest number that is free: this
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode))


def _discard_output() -> None:
    """What Python still holds of it when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _nothing_to_lose() -> Iterator[None]:
    """Ctrl-C ends the process there and then. An exception in the middle of an import can crash Python."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _run(arguments: Sequence[str] | None) -> int:
    with _nothing_to_lose():
        import asyncio

        import uvloop

        from decided import logs, settings
        from decided.commands import parser
        from decided.commands.common import refuse_flags_of_a_model
        from decided.errors import StartError

        given = parser.parse(arguments)
    command = parser.COMMANDS[given.pop("command")]
    named = {item.name: given.pop(item.name, None) for item in settings.flag_settings()}
    flags = {name: value for name, value in named.items() if value is not None}
    try:
        refuse_flags_of_a_model(flags, given)
        chosen = settings.load(flags | command.OVERRIDES)
        logs.configure(chosen.log_level, chosen.log_format)
        uvloop.run(_ended_by_ctrl_c(command.execute(chosen, given)))
    except StartError as error:
        print(f"decided: {error}", file=sys.stderr)
        return error.exit_code
    except asyncio.CancelledError:
        return 1
    return 0


async def _ended_by_ctrl_c(work: Coroutine[Any, Any, None]) -> None:
    """By the first, even where the work does not wait but blocks, as it does while it reads from a terminal. asyncio
    only cancels, which what blocks would not notice; that is still the way out of an import, which must not break."""
    import asyncio

    loop, task, cancel = asyncio.get_running_loop(), asyncio.current_task(), signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not callable(cancel) or (asyncio.current_task(loop) is task and not _imports(frame)):
            raise KeyboardInterrupt
        cancel(number, frame)

    if callable(cancel):  # not where it is ignored, as in the background of a script
        signal.signal(signal.SIGINT, interrupt)
    try:
        await work
    finally:
        if signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, cancel)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


if __name__ == "__main__":
    sys.exit(main())
