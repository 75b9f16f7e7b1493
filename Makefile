# hermes-tools. `make` alone lists the targets.
PYTHON ?= python3
PREFIX ?= /usr/local
DESTDIR ?=
VENV = .venv
BIN = $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-faults test-faults-short agents lint bench bench-growth install uninstall clean

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
	$(BIN)/python -m pytest -n auto -m 'not faults'

test-quick: $(VENV)/.ready ## without the slow tests
	$(BIN)/python -m pytest -n auto -m 'not slow and not faults'

# Tests beside these are skipped without them. Each is made where it stays: scripts name their
# interpreter by its path. The marker says that an install has ended.
BESIDE = $(VENV)/agents/0.13.0/.ready $(VENV)/agents/0.19.0/.ready $(VENV)/synapse/.ready
agents: $(VENV)/.ready ## for tests beside them: the agent's releases, a Matrix server (1 GB)
	@$(MAKE) --no-print-directory --silent --keep-going --jobs=3 $(BESIDE)

$(VENV)/agents/%/.ready: PACKAGE = hermes-agent==$(notdir $(@D))
$(VENV)/synapse/.ready: PACKAGE = matrix-synapse
$(BESIDE): | $(VENV)/.ready
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --retries 1 $(PACKAGE)
	@touch $@

bench: $(VENV)/.ready ## medians and ratios on a store of 1,000 sessions (BENCH=options)
	$(BIN)/python tests/bench/run.py $(BENCH)

bench-growth: $(VENV)/.ready ## what grows, up to ten times the size (12 GB below build/)
	$(BIN)/python tests/bench/run.py --growth build/bench --runs 5 $(BENCH)

test-faults: $(VENV)/.ready ## kill, fill and cut at random, for minutes (FAULTS=rounds)
	$(BIN)/python -m pytest -m faults -o timeout=3600

# pytest's 5: there was nothing to run
test-faults-short: $(VENV)/.ready
	FAULTS=$${FAULTS:-2} $(BIN)/python -m pytest -m faults -o timeout=1200 || [ $$? = 5 ]

lint: $(VENV)/.ready ## ruff, mypy, and mandoc where it is installed
	$(BIN)/ruff check hermes_tools tests
	$(BIN)/mypy
	@if command -v mandoc >/dev/null; then mandoc -T lint -W warning man/man?/*.?; \
	else echo 'mandoc is not installed: the manual was not checked'; fi

# A folder of its own for the package and what it depends on, so that neither the system's Python
# nor the agent's is touched; links in bin, pages in share/man.
LIB = $(DESTDIR)$(PREFIX)/lib/hermes-tools
install: $(VENV)/.ready ## into PREFIX (/usr/local), below DESTDIR
	rm -rf "$(LIB)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-warn-script-location \
		--target "$(LIB)" '.[deliver,redact]'
	rm -rf "$(LIB)/bin" "$(LIB)/share"
	install -d "$(LIB)/bin" "$(DESTDIR)$(PREFIX)/bin"
	sed 's|^\(.*\)python=python3$$|\1python='"$$($(BIN)/python -c \
		'import sys; print(sys._base_executable)')"'|' bin/hermes >"$(LIB)/bin/hermes"
	chmod 755 "$(LIB)/bin/hermes"
	for script in bin/hermes-session-*; do \
		ln -sf ../lib/hermes-tools/bin/hermes "$(DESTDIR)$(PREFIX)/$$script"; done
	for page in man/man?/*.?; do \
		install -D -m 644 "$$page" "$(DESTDIR)$(PREFIX)/share/$$page"; done

uninstall: ## what install put there
	for script in bin/hermes-session-*; do rm -f "$(DESTDIR)$(PREFIX)/$$script"; done
	for page in man/man?/*.?; do rm -f "$(DESTDIR)$(PREFIX)/share/$$page"; done
	rm -rf "$(LIB)"

clean: ## remove what make made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
