"""Python imports this at its start when the folder is on PYTHONPATH: the machine is then taken for an x86 whose
processor says nothing of VNNI, by this process and by all that it starts. `make test-without-vnni`."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from decided import hardware

cast(Any, hardware).platform = SimpleNamespace(machine=lambda: "x86_64")
hardware._CPU_FLAGS = Path(os.devnull)
