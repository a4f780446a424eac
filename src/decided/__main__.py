"""`python -m decided` is the `decided` command."""

import sys

from decided.cli import main

sys.exit(main())
