"""The models inside the package."""

import os

# ONNX Runtime reports to its maker from the moment it is imported (seen in 1.31 on Linux). Not from here.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
