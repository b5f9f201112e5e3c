# Each target does the set-up it needs, in .venv; PYTHON says which interpreter (3.11 or newer) makes that.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

# A process a core; a file's tests stay in one process, whose fixtures they share.
WORKERS ?= auto
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: predict test test-fast lint tables tables-check documents mutation-check clean
.DELETE_ON_ERROR:

predict: $(VENV)/.installed
	$(BIN)/costmodel predict densenet121 --hardware nvidia-h200

test: $(VENV)/.test
	$(PYTEST)

# Without what takes over 0.2 s of CPU time: 188 s of it in all, under two minutes on two cores.
test-fast: $(VENV)/.test
	$(PYTEST) -m "not slow"

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Every table of README and docs/ that is made from measurements.
tables: $(VENV)/.test
	$(BIN)/python scripts/tables.py

# Compare the documents with their tables; nothing is written.
tables-check: $(VENV)/.test
	$(BIN)/python scripts/tables.py --check

# What README and docs/ show of commands, docstrings and record types.
documents: $(VENV)/.test
	$(BIN)/python scripts/documents.py
	$(BIN)/python scripts/reference.py
	$(BIN)/python scripts/json_schema.py

# Share of 100 small faults in costmodel/ that the tests notice; takes hours.
mutation-check: $(VENV)/.mutation
	$(BIN)/python scripts/mutation_check.py

clean:
	rm -rf $(VENV)

# torch comes first, by itself: it is by far the largest, and pip takes the build that this machine is configured for.
$(VENV)/.torch: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "costmodel needs Python 3.11 or newer: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch torchvision
	@touch $@

# Installed in place, so that an edit needs no new installation.
$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	$(PIP) --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	$(PIP) --editable '.[test,timm]'
	@touch $@

$(VENV)/.lint: $(VENV)/.installed
	$(PIP) --editable '.[test,dev,timm]'
	@touch $@

$(VENV)/.mutation: $(VENV)/.test
	$(PIP) --editable '.[test,mutation,timm]'
	@touch $@
