"""The real command line with one more kind, `fake`, which the package itself does not know."""

import sys

from decided.cli import main
from decided.engines.api import KINDS

if __name__ == "__main__":
    KINDS["fake"] = "tests.support.fake_model"
    sys.exit(main())
