# Corpusmill. Every target sets up what it needs: on a machine with make and Python 3.11 or newer, `make demo` and
# `make test` are each one command. Everything is installed into .venv, hash-checked, from requirements.lock (what the
# image has, too) and requirements-dev.lock.

PYTHON ?=
VENV   := .venv
TOOLS  := .cache/setup-venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
LOCK   := --universal --generate-hashes --no-emit-index-url --no-emit-find-links \
          --no-annotate --no-header

# uv does not read pip's settings, and a wheel may be where only pip was told to look.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
# Some environments forbid Python to keep compiled files; every process would then compile every library again.
export PYTHONDONTWRITEBYTECODE :=
# OpenMP returns wrong numbers in forked children, and tasks are forked.
export NUMBA_THREADING_LAYER := workqueue
export NUMBA_CACHE_DIR := $(CURDIR)/.cache/numba

.DEFAULT_GOAL := help
.PHONY: help setup demo up down compose-env pin-images wheel test test-slow test-thorough fuzz test-consumers test-ui test-wheel test-containers screenshots docs check lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## install everything into .venv (the other targets do this by themselves)

demo: $(STAMP) ## build a dataset from text on this machine, under Airflow, offline: about 2 minutes
	@$(BIN)/python demo/run.py

up: $(STAMP) ## start Airflow and leave it running; prints the address of its UI
	@$(BIN)/python demo/server.py up

down: $(STAMP) ## stop Airflow
	@$(BIN)/python demo/server.py down

compose-env: ## write .env for docker compose, and say what keeps compose from working here
	@python3 deploy/compose_env.py .env

pin-images: ## write the digests of the images into docker-compose.yaml and the Dockerfile; needs docker and a network
	@python3 deploy/pin_images.py

wheel: $(TOOLS)/.installed ## write the wheel into dist/, for an Airflow that is already there (docs/existing-airflow.md)
	@$(TOOLS)/bin/uv build -q --wheel --build-constraints requirements-setup.lock -o $(or $(WHEELS),dist) .
	@rm -rf build/bdist.* build/lib pipeline/corpusmill.egg-info
	@ls $(or $(WHEELS),dist)/*.whl

test: $(STAMP) ## run the tests, but for the slow ones
	$(BIN)/python -m pytest -m "not slow" -n auto --dist loadfile --no-loadscope-reorder

test-slow: $(STAMP) ## run the slow tests: whole builds, kill and resume, the DAG end to end
	$(BIN)/python -m pytest -m "slow and not thorough" -n auto --dist loadfile --no-loadscope-reorder --durations 25 \
	    -o faulthandler_timeout=900

test-thorough: $(STAMP) ## run every example of the properties, of which the other targets run a fifth, and further cases
	$(BIN)/python -m pytest -m "hypothesis or thorough" --hypothesis-profile thorough -n auto --dist loadfile \
	    --no-loadscope-reorder

fuzz: $(STAMP) ## change inputs of every kind for a minute each (FUZZ_SECONDS=3600 for longer) and keep what goes wrong
	$(BIN)/python benchmarks/fuzz.py --seconds $(or $(FUZZ_SECONDS),60) --seed $(or $(FUZZ_SEED),0)

test-consumers: $(STAMP) ## let training programs' own readers read a dataset, each in its own environment
	$(BIN)/python tests/consumers/run.py

test-ui: $(STAMP) ## drive a real Airflow in the machine's own Chromium: form, progress, report, a shard reprocessed
	$(BIN)/python tests/ui/run.py

test-wheel: $(STAMP) ## try the wheel in fresh environments with Airflow 3.1, 3.2 and 3.3 (CORPUSMILL_TEST_AIRFLOWS=3.3.2: one)
	$(BIN)/python -m pytest tests/wheel

test-containers: $(STAMP) ## start the compose file in both profiles, kill and cut off its services, compare the bytes
	$(BIN)/python -m pytest tests/containers -s

screenshots: $(STAMP) ## test-ui, and take the screenshots in README.md again
	$(BIN)/python tests/ui/run.py screenshots

docs: $(STAMP) ## make the site in build/site; warnings are errors, and no page may ask another server
	@$(BIN)/python docs/site/build.py

check: $(STAMP) ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff check --select AIR --preview dags plugins
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lock: $(TOOLS)/.installed ## pin what requirements*.in ask for, with hashes and without any host
	for asked in requirements.in requirements-dev.in requirements-setup.in tests/consumers/*/requirements*.in tests/ui/requirements.in tests/containers/requirements.in docs/site/requirements.in; do \
	    python=$$(cat $$(dirname $$asked)/python-version 2>/dev/null || echo 3.11); \
	    $(TOOLS)/bin/uv pip compile $$asked $(LOCK) --python-version $$python -o $${asked%.in}.lock || exit 1; \
	done

clean: ## remove what the demo, the tests and the caches left; keeps .venv, .airflow (history, logs) and other datasets
	@if [ -x $(BIN)/python ]; then $(BIN)/python demo/server.py down; fi
	rm -rf .cache build .hypothesis .mypy_cache .pytest_cache .ruff_cache sample .sample-being-written
	rm -rf work/demo outputs/demo
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf

$(TOOLS)/.installed: requirements-setup.lock
	@set -e; for python in $(or $(PYTHON),python3.11 python3 python3.12 python3.13 python3.14); do \
	    if "$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "Using $$($$python --version): $$python"; \
	        "$$python" -m venv --clear $(TOOLS); \
	        $(TOOLS)/bin/python -m pip install -q --require-hashes -r requirements-setup.lock; \
	        touch $@; exit 0; \
	    fi; \
	done; \
	echo "Corpusmill needs Python 3.11 or newer with its venv module." >&2; \
	echo "  looked for  $(or $(PYTHON),python3.11 python3 python3.12 python3.13 python3.14)" >&2; \
	echo "  next        install one (Debian, Ubuntu: python3 and python3-venv), or say: make PYTHON=/path/to/python3" >&2; \
	exit 1

# What the build leaves in pipeline/ describes the package a second time, and Airflow would find its plugin twice.
$(STAMP): $(TOOLS)/.installed requirements.lock requirements-dev.lock pyproject.toml
	@$(TOOLS)/bin/uv venv -q --allow-existing --python $(TOOLS)/bin/python $(VENV)
	@$(TOOLS)/bin/uv pip sync -q --python $(BIN)/python --require-hashes requirements.lock requirements-dev.lock
	@$(TOOLS)/bin/uv pip install -q --python $(BIN)/python --no-deps --build-constraints requirements-setup.lock -e .
	@rm -rf pipeline/corpusmill.egg-info
	@touch $@
	@echo "Installed into $(VENV)."
