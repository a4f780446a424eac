# Everything is installed into .venv, pinned by requirements.lock. Nothing else on the machine is touched.
PYTHON ?= python3
BIN := .venv/bin
UV := 0.13.7

.PHONY: install serve test check lock clean

install: .venv/installed

.venv/installed: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --requirement requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	touch $@

serve: install
	$(BIN)/decided serve

test: install
	$(BIN)/python -m pytest

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lock: install ## pin the newest releases that pyproject.toml admits 
	$(BIN)/uv pip compile --universal --generate-hashes --no-header --no-annotate --upgrade --python-version 3.11 \
		--group dev pyproject.toml --output-file requirements.lock

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
