# hermes-tools. `make` alone lists the targets.
PYTHON ?= python3
PREFIX ?= /usr/local
DESTDIR ?=
VENV = .venv
BIN = $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-faults lint bench bench-growth install uninstall clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

$(VENV): $(VENV)/.ready

# A marker, not the folder: an interrupted install is finished at the next call.
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,deliver,redact]'
	@touch $@

demo: $(VENV)/.ready ## real pipelines on a sample store, in a temporary home
	@sh tests/demo.sh

test: $(VENV)/.ready ## everything but the long fault runs
	$(BIN)/python -m pytest

test-quick: $(VENV)/.ready ## without the slow tests
	$(BIN)/python -m pytest -m 'not slow and not faults'

bench: $(VENV)/.ready ## medians and ratios on a store of 1,000 sessions (BENCH=options)
	$(BIN)/python tests/bench/run.py $(BENCH)

bench-growth: $(VENV)/.ready ## the same at ten times the size (8 GB of disk)
	$(BIN)/python tests/bench/run.py --sessions 10000 --messages 680000 --runs 5 $(BENCH)

lint: $(VENV)/.ready ## ruff, mypy, and mandoc where it is installed
	$(BIN)/ruff check hermes_tools tests
	$(BIN)/mypy
	@if command -v mandoc >/dev/null; then mandoc -T lint -W warning man/man?/*.?; \
	else echo 'mandoc is not installed: the manual was not checked'; fi

clean: ## remove what make made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
