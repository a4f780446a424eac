"""Everything that the embedded model says in docs and golden files, written anew in float32: `make numbers`."""

from tests import test_docs, test_docs_commands
from tests.embedded import test_golden

if __name__ == "__main__":
    for written in (test_golden, test_docs, test_docs_commands):
        written.rewrite()
