"""Sessions of ONNX Runtime that share their weights in memory.

A session lays the weights out anew, as the kernels of this processor want them, and keeps that copy to itself. So the
first one writes its copy to a file, and those that work map the file. By then it has lost its name: it ends with the
process, and no other process, with other kernels, can come upon it.
"""

import ctypes
import logging
import re
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnxruntime

log = logging.getLogger("decided.embedded")

# Kernels for AVX-512 read packed weights with aligned loads, and a load that is off a cache line ends the process. A
# session that packs for itself places them so; in a file they lie where the tensors before them end.
_LINE = 64
_PACKED_AT = re.compile(rb"\|(\d+);\d+;")


def sessions(graph: Path, threads: int) -> tuple[Any, Any]:
    """One of a single thread, and one of all."""
    if threads == 1:
        alone = _session(graph, 1)
        return alone, alone
    try:
        with TemporaryDirectory(prefix="decided-") as folder:
            laid_out = Path(folder) / "laid-out.onnx"
            _session(graph, 1, write_to=laid_out)
            _give_back()
            if not _aligned(laid_out.read_bytes()):
                raise ValueError("packed weights that do not begin at cache lines")
            return _session(laid_out, 1), _session(laid_out, threads)
    except Exception as error:  # also a read-only or full disk, in the words of whoever found it
        log.info("each session keeps the weights in memory for itself: %s", error)
        return _session(graph, 1), _session(graph, threads)


def _aligned(graph: bytes) -> bool:
    """Whether the packed weights that a graph points to (key|offset;length;) are found, and all begin at a line."""
    places = [int(found[1]) for found in _PACKED_AT.finditer(graph)]
    return bool(places) and all(place % _LINE == 0 for place in places)


def _give_back() -> None:
    """What the first session has freed: glibc would keep it for later."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _session(graph: Path, threads: int, write_to: Path | None = None) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads that spin while they wait cost more than they gain on a shared machine.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    if write_to is not None:
        options.optimized_model_filepath = str(write_to)
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
        options.add_session_config_entry("session.save_external_prepacked_constant_initializers", "1")
    return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
