# Needs Python 3.11 or newer with venv, make and git; everything else comes into .venv.

PYTHON ?= python3
UV_VERSION := $(shell sed -n 's/.*"uv==\(.*\)".*/\1/p' pyproject.toml)
BIN := .venv/bin
PY := $(BIN)/python
# Where the demo keeps its checkpoints: local (a folder), or s3.
STORE ?= local
export LASTGOOD_STORE := $(STORE)
STACK := $(PY) -m lastgood.stack
# Some environments forbid Python to keep what it compiled: then each of Airflow's processes, and each
# that a test starts, compiles Airflow again.
export PYTHONDONTWRITEBYTECODE :=
# Names, files and output are UTF-8, whatever the locale.
export PYTHONUTF8 := 1

.DEFAULT_GOAL := help
.PHONY: help venv torch localstack run up stop status check test test-fast test-slow soak lint format bench screenshots lock clean

help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: .venv/.installed ## Create .venv with the locked dependencies

.venv/.uv-$(UV_VERSION):
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 14) else f"Python 3.11 to 3.13 is needed, $(PYTHON) is {v[0]}.{v[1]}; choose one by make PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

# Without a home to keep a cache in, it does without one.
UV := cache=$$($(BIN)/uv cache dir 2>/dev/null); mkdir -p "$$cache" 2>/dev/null && [ -w "$$cache" ] \
  || export UV_NO_CACHE=1; VIRTUAL_ENV="$(CURDIR)/.venv" $(BIN)/uv

# The lock names uv and the build backend too, so that nothing comes in beside it.
.venv/.installed: .venv/.uv-$(UV_VERSION) requirements.lock pyproject.toml
	@$(UV) pip sync --quiet --require-hashes requirements.lock
	@$(UV) pip install --quiet --no-deps --no-build-isolation --editable .
	@if [ -e .venv/.torch ]; then $(ADD_TORCH); fi
	@touch $@

# Kept apart from the lock, which would bring it to everyone; what follows the lock removes it.
ADD_TORCH = $(PY) -m ensurepip && $(PY) -m pip install --quiet \
  $(shell sed -n 's/^torch = \["\(.*\)"\]/\1/p' pyproject.toml)

torch: venv ## Add PyTorch, for examples/train_torch.py and its tests; `make venv` keeps it
	$(ADD_TORCH)
	@touch .venv/.torch

# An environment of its own: its pins are others than ours.
localstack: .venv/localstack/.installed ## Add LocalStack's S3, for the tests that need it

.venv/localstack/.installed: .venv/.uv-$(UV_VERSION) tests/localstack/requirements.lock
	@$(UV) venv --quiet --clear --python $(PY) .venv/localstack
	@$(UV) pip sync --quiet --require-hashes --python .venv/localstack tests/localstack/requirements.lock
	@touch $@

run: venv ## Start the stack and take the demo training job through everything
	$(PY) -m lastgood.stack.demo

up: venv ## Start the stack: PostgreSQL, Airflow, the coordinator
	$(STACK) up

stop: ## Stop the stack; no process of it is left
	@if [ -x $(PY) ]; then $(STACK) down; else echo "nothing was ever started here"; fi

status: venv ## Show what runs, where, and how much memory it takes
	@$(STACK) status || [ $$? -eq 3 ]

# One worker a core, each with its own PostgreSQL; a file stays with one worker, and its fixtures.
FAST := $(BIN)/pytest -m "not slow" -n auto --dist loadfile
# Two stacks wait for their own schedulers side by side. The files of the longest tests come first by
# name, not the files of the most tests.
SLOW := $(BIN)/pytest -m slow -n 2 --dist loadfile --no-loadscope-reorder

ifdef FILE
test: venv ## Run the whole test suite, or FILE=tests/rules only
	$(BIN)/pytest $(FILE)
else
test: test-fast test-slow
endif

test-fast: venv ## Run the tests that need neither Airflow nor a browser
	$(FAST)

test-slow: venv ## Run the others: Airflow, the demo, the browser, long faults
	$(SLOW)

check: lint test-fast ## Check what a change needs before its commit: lint and test-fast

soak: venv ## Let the state machine, the rules and all interleavings run long, from other seeds each time
	LASTGOOD_SOAK=1 $(BIN)/pytest -o timeout=0 \
	  tests/retention/test_state_machine.py tests/concurrency tests/rules

screenshots: venv ## Make the pictures of docs/images anew, by Chromium
	$(BIN)/pytest tests/browser/screenshots.py

lint: venv ## Check style, types and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: venv ## Format the code and fix what can be fixed safely
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: venv ## Run the benchmarks
	@set -e; for program in bench/*.py; do echo "== $$program"; $(PY) $$program; done

lock: .venv/.uv-$(UV_VERSION) ## Resolve the dependencies anew into requirements.lock
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile pyproject.toml \
	  --extra server --extra kubernetes --extra demo --group dev \
	  --python-version 3.11 --universal --generate-hashes --no-emit-index-url \
	  --quiet --output-file requirements.lock
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile tests/localstack/requirements.in \
	  --python-version 3.11 --universal --generate-hashes --no-emit-index-url \
	  --quiet --output-file tests/localstack/requirements.lock

clean: ## Stop the stack, delete its data (catalog and checkpoints too) and .venv
	@if [ -x $(PY) ]; then $(STACK) clean; fi
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
