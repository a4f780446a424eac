"""`decided serve`: run the server."""

from argparse import ArgumentParser
from typing import Any

from decided.commands.common import add_settings
from decided.settings import Settings

SUMMARY = "run the server"

DESCRIPTION = """\
Serve typed decisions over HTTP until SIGTERM or Ctrl-C, then finish what is in flight and exit 0.

Every flag is also an environment variable, named in its line; the flag wins. Keys are variables only:
  SERVICE_API_KEY       the one key that the POST endpoints ask for
  SERVICE_API_KEY_FILE  a file with NAME=KEY or a key on each line
  SERVICE_REMOTE_API_KEY  the key that the remote engine asks for
SIGHUP reads the key file and the profiles again, and opens the audit log anew.
"""

EPILOG = """\
try it:
  decided serve --host 127.0.0.1
  decided serve --model ./my-fine-tune --device cuda --log-format json
  curl http://127.0.0.1:8000/v1/systemone -d '{
    "state": "My parcel is two days late and nobody answers the phone!",
    "questions": {"angry": {"type": "noul", "instructions": "Is the customer angry?"}}}'

exit codes: 0 stopped when told to, 2 a setting is wrong, 3 the model cannot be loaded, 4 the address is taken,
            5 the inference worker stopped or got stuck, see --worker-grace-s
"""

OVERRIDES: dict[str, str] = {}


def add_arguments(parser: ArgumentParser) -> None:
    add_settings(parser, to_serve=True)


async def execute(chosen: Settings, given: dict[str, Any]) -> None:
    from decided.web.server import serve

    await serve(chosen)
