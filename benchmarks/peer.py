"""The peer under load: opendecider's own application around a fake model, run by the Python of its own environment.

The application is built by the package's `create_app` with its default settings and served by uvicorn with one worker,
as its `serve` command does, on httptools and uvloop. The model answers at once with equal probabilities.
"""

import argparse
import logging
from importlib import import_module
from typing import Any


class FakeModel:
    """What opendecider asks of a model: probabilities by option for each (state, instructions, options)."""

    device = "cpu"

    def decide_many(
        self, items: list[tuple[Any, str, dict[str, Any]]], info: list[dict[str, Any]] | None = None
    ) -> list[dict[str, float]]:
        if info is not None:
            info.extend({"input_tokens": 0, "truncated": False} for _ in items)
        return [dict.fromkeys(options, 1 / len(options)) for _, _, options in items]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True, help="port to listen on, loopback only")
    parser.add_argument("--log-level", default="info", help="info writes one line per request, as the package does")
    given = parser.parse_args()

    package, serve, uvicorn = (import_module(name) for name in ("opendecider", "opendecider.serve", "uvicorn"))
    logging.basicConfig(level=given.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    model = package.OpenDecider(FakeModel(), {"name": "fake", "kind": "nano"})
    app = serve.create_app(model, serve.Settings(host="127.0.0.1", port=given.port, log_level=given.log_level))
    uvicorn.run(app, host="127.0.0.1", port=given.port, log_level=given.log_level, http="httptools", loop="uvloop")


if __name__ == "__main__":
    main()
