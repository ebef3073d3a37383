# `make run` and `make test` set up everything they need. PYTHON chooses the interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DONE := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup run test test-slow test-previous lint evals bench bench-peers lock clean

help:  ## what there is to make
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/'

setup: $(DONE)  ## the virtual environment with everything in it

$(DONE): requirements.txt requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(DONE)

run: $(DONE)  ## the whole system on an embedded PostgreSQL, with demo data
	$(BIN)/memberintel run $(ARGS)

test: $(DONE) lint  ## every test but the slow ones
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

test-slow: $(DONE)  ## what needs emulators, browsers or long campaigns
	$(BIN)/python -m pytest -n 2 --dist loadfile -m slow

test-previous: $(DONE)  ## the tests of the release before on the schema of this one (PREVIOUS=commit)
	$(BIN)/python -m tests.previous.run $(PREVIOUS)

evals: $(DONE)  ## the gates of a release, against the offline model: plumbing (ARGS="--provider anthropic" for more)
	$(BIN)/memberintel evals $(ARGS)

bench: $(DONE)  ## the benchmarks, into benchmarks/RESULTS.md (QUICK=1 only tries them; LOCOMO=DIR has LoCoMo's conversations)
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(if $(LOCOMO),--locomo $(LOCOMO)) $(ARGS)

PEERS := $(addprefix .data/peers/,langgraph adk mem0)

bench-peers: $(DONE) $(addsuffix /.installed,$(PEERS))  ## a turn beside LangGraph, Google ADK and Mem0, each in an environment of its own
	$(BIN)/python -m benchmarks.peers $(if $(QUICK),--quick) $(ARGS)

.data/peers/%/.installed: benchmarks/peers/requirements-%.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

lint: $(DONE)  ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

lock:  ## pin requirements.in and requirements-dev.in (needs uv)
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate requirements.in -o requirements.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate requirements-dev.in -o requirements-dev.txt

clean:  ## remove what the other targets made, the local data included
	rm -rf $(VENV) .data build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .schemathesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
