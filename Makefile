# Everything is installed into .venv, pinned by the lock files. Nothing else on the machine is touched.
PYTHON ?= python3
BIN := .venv/bin
UV := 0.13.7
INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python

# Some environments forbid Python to keep what it compiled. The tests start hundreds of processes: each would compile
# hundreds of modules again.
export PYTHONDONTWRITEBYTECODE :=

TORCH := 2.13.0
RAY := 2.55.0

# Some files at a time, the longest first (tests/conftest.py). Most tests wait for a server more than they work: four on
# two cores. Those of models compute all the time, and each process that runs them has to load a lot first: two.
PYTEST := -m pytest --dist loadfile --no-loadscope-reorder -n
MEASURED := --cov --cov-append --cov-report= --cov-fail-under=0

# Where it can matter which processor the embedded model runs on. What a run costs, and what the model knows, does not depend on it.
EMBEDDED_TESTS := $(addprefix tests/embedded/test_,golden.py invariance.py limits.py) -k 'not no_run and not clips and not decisive'

# What `make install EXTRAS="parquet excel"` adds; which there are, pyproject.toml says.
EXTRAS ?=
KNOWN_EXTRAS := $(shell sed -n '/^\[project.optional-dependencies\]/,/^$$/s/ = .*//p' pyproject.toml)
UNKNOWN_EXTRAS := $(filter-out $(KNOWN_EXTRAS),$(EXTRAS))
ifneq ($(UNKNOWN_EXTRAS),)
$(error there is no extra $(UNKNOWN_EXTRAS); there are: $(KNOWN_EXTRAS))
endif
COMMA := ,
WITH := $(subst $() $(),$(COMMA),$(strip $(EXTRAS)))

.PHONY: install serve test test-torch test-without-vnni test-ray coverage measured measured-torch check numbers pictures eval-model lock sbom clean

install: .venv/installed  ## into .venv; with libraries that only some parts need: make install EXTRAS="parquet excel"
ifneq ($(WITH),)
	@echo "installing the extras $(EXTRAS)"
	@$(INSTALL) --constraint requirements.lock --no-build-isolation --editable '.[$(WITH)]'
endif
	@echo "installed: try $(BIN)/decided doctor"

.venv/installed: requirements-runtime.lock requirements-build.lock pyproject.toml models/base/pyproject.toml
	@echo "1/3 making .venv"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV)
	@echo "2/3 installing the libraries that the lock files name"
	@$(INSTALL) --require-hashes --requirement requirements-runtime.lock
	@$(INSTALL) --require-hashes --requirement requirements-build.lock
	@echo "3/3 installing decided and its model"
	@$(INSTALL) --no-deps --no-build-isolation --editable . --editable ./models/base
	@touch $@

.venv/installed-dev: .venv/installed requirements.lock
	@echo "installing what the tests need"
	@$(INSTALL) --require-hashes --requirement requirements.lock
	@touch $@

serve: install
	$(BIN)/decided serve

test: .venv/installed-dev  ## all that the README needs; some of it: make test ARGS="tests/spec -k capacity"
	$(BIN)/python $(PYTEST) 4 $(ARGS)

.venv-torch/installed: requirements.lock requirements-torch.lock pyproject.toml
	$(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV)
	.venv-torch/bin/uv pip install --quiet --python .venv-torch/bin/python --require-hashes \
		--requirement requirements.lock --requirement requirements-torch.lock
	.venv-torch/bin/python -m pip install --quiet --disable-pip-version-check torch==$(TORCH)
	.venv-torch/bin/uv pip install --quiet --python .venv-torch/bin/python --no-deps --no-build-isolation --editable .
	touch $@

test-torch: .venv-torch/installed  ## what needs PyTorch, in an environment of its own; without it, a failure
	.venv-torch/bin/python -c "import gliclass, laya, opendecider, peft, torch, transformers"
	OMP_NUM_THREADS=1 .venv-torch/bin/python $(PYTEST) 2 tests/torch tests/training -m 'torch and not slow' $(ARGS)

.venv-ray/installed: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv-ray
	.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV)
	.venv-ray/bin/uv pip install --quiet --python .venv-ray/bin/python --requirement requirements.lock "ray==$(RAY)"
	.venv-ray/bin/uv pip install --quiet --python .venv-ray/bin/python --no-deps --no-build-isolation --editable .
	touch $@

test-ray: .venv-ray/installed  ## decided run --ray, on a local Ray; not part of CI, which Ray's start would double
	.venv-ray/bin/python -m pytest tests/commands/test_run_ray.py -m ray

test-without-vnni: .venv/installed-dev  ## the embedded model as x86 processors without VNNI serve it, on any machine
	PYTHONPATH=$(CURDIR)/tests/support/without_vnni $(BIN)/python $(PYTEST) 2 $(EMBEDDED_TESTS)

coverage: .venv/installed-dev .venv-torch/installed  ## branch coverage of all tests, with a floor
	rm -f .coverage .coverage.* .coverage-torch .coverage-torch.*
	$(MAKE) -j $(AT_ONCE) --output-sync measured measured-torch
	$(BIN)/coverage combine --quiet --append .coverage-torch
	$(BIN)/coverage report

# Both at a time where there are cores for it: on two, one after the other was faster (14.1 minutes, 15.5 together).
AT_ONCE := $(shell test $$(getconf _NPROCESSORS_ONLN) -ge 4 && echo 2 || echo 1)

measured:
	$(MAKE) test ARGS="$(MEASURED)"

measured-torch:
	COVERAGE_FILE=.coverage-torch $(MAKE) test-torch ARGS="$(MEASURED)"

numbers: .venv/installed-dev  ## after a change of the model: write all numbers of the docs and golden files anew
	$(BIN)/python -m tests.numbers

pictures: .venv/installed-dev  ## after a change of the model or the page: take the pictures of the docs anew
	$(BIN)/python -m tests.page.screenshots

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

DATA ?= $(patsubst %,benchmarks/%_tries.jsonl,first second third fourth)
eval-model: install  ## how good the served model is, on questions of ours or on yours: make eval-model DATA=folder
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

sbom: install  ## what is shipped, as CycloneDX: deploy/supply-chain.md
	$(BIN)/python deploy/sbom.py > sbom.cdx.json

clean:
	rm -rf .venv .venv-torch .venv-ray .coverage .coverage.* .coverage-torch .coverage-torch.* .mypy_cache .pytest_cache .ruff_cache .hypothesis
