# Everything is installed into .venv, pinned by the lock files. Nothing else on the machine is touched.
PYTHON ?= python3
BIN := .venv/bin
UV := 0.13.7
INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python

TORCH := 2.13.0

.PHONY: install serve test test-torch check eval-model lock clean

install: .venv/installed

.venv/installed: requirements-runtime.lock requirements-build.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV)
	$(INSTALL) --require-hashes --requirement requirements-runtime.lock
	$(INSTALL) --require-hashes --requirement requirements-build.lock
	$(INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

.venv/installed-dev: .venv/installed requirements.lock
	$(INSTALL) --require-hashes --requirement requirements.lock
	touch $@

serve: install
	$(BIN)/decided serve

# Three at a time, a file each: most tests wait for a server more than they work.
test: .venv/installed-dev
	$(BIN)/python -m pytest -n 3 --dist loadfile

.venv-torch/installed: requirements.lock requirements-torch.lock pyproject.toml
	$(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV)
	.venv-torch/bin/uv pip install --quiet --python .venv-torch/bin/python --require-hashes \
		--requirement requirements.lock --requirement requirements-torch.lock
	.venv-torch/bin/python -m pip install --quiet --disable-pip-version-check torch==$(TORCH)
	.venv-torch/bin/uv pip install --quiet --python .venv-torch/bin/python --no-deps --no-build-isolation --editable .
	touch $@

test-torch: .venv-torch/installed  ## the kinds that need PyTorch, in an environment of their own
	.venv-torch/bin/python -m pytest tests/torch -m 'torch and not slow' -n 3 --dist loadfile

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

eval-model: install  ## how good the served model is: make eval-model DATA=folder ARGS="--reorder 200"
	$(BIN)/python benchmarks/quality.py $(DATA) $(ARGS)

lock: install  ## pin the newest releases that pyproject.toml admits
	$(BIN)/uv pip compile --universal --generate-hashes --no-header --no-annotate --upgrade --python-version 3.11 \
		--group dev pyproject.toml --output-file requirements.lock
	$(BIN)/uv pip compile --universal --generate-hashes --no-header --no-annotate --python-version 3.11 \
		--constraint requirements.lock pyproject.toml --output-file requirements-runtime.lock
	$(BIN)/uv pip compile --universal --generate-hashes --no-header --no-annotate --python-version 3.11 \
		--constraint requirements.lock --group build --output-file requirements-build.lock
	$(BIN)/uv pip compile --universal --generate-hashes --no-header --no-annotate --python-version 3.11 \
		--constraint requirements.lock --group torch --output-file requirements-torch.lock

clean:
	rm -rf .venv .venv-torch .mypy_cache .pytest_cache .ruff_cache .hypothesis
