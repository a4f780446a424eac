"""The service as an ASGI application: `uvicorn --factory decided.asgi:create_app`."""

from decided.settings import Settings
from decided.web.asgi import Application, create_app

__all__ = ["Application", "Settings", "create_app"]
