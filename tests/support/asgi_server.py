"""`python -m tests.support.asgi_server SERVER serve ...`: our command line, our application, another HTTP server.

SERVER is uvicorn or hypercorn. Both log the address that they listen on in words that end like ours.
"""

import sys

from decided.asgi import create_app
from decided.cli import main
from decided.engines.api import KINDS
from decided.settings import Settings
from decided.web import server
from tests.spec.engines import HOME, NAMES


async def under_uvicorn(settings: Settings) -> None:
    import uvicorn

    config = uvicorn.Config(
        create_app(settings), settings.host, settings.port, log_config=None, access_log=False, lifespan="on"
    )
    await uvicorn.Server(config).serve()


async def under_hypercorn(settings: Settings) -> None:
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    config = Config()
    config.bind = [f"{settings.host}:{settings.port}"]
    config.graceful_timeout = settings.request_timeout_s
    await serve(create_app(settings), config)  # type: ignore[arg-type]


if __name__ == "__main__":
    KINDS |= dict.fromkeys(NAMES, HOME) | {"fake": "tests.support.fake_model"}
    server.serve = {"uvicorn": under_uvicorn, "hypercorn": under_hypercorn}[sys.argv[1]]
    sys.exit(main(sys.argv[2:]))
