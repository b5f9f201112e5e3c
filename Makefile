# Each target does the set-up it needs, in .venv; PYTHON says which interpreter (3.11 or newer) makes that.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: predict test lint clean
.DELETE_ON_ERROR:

predict: $(VENV)/.installed
	$(BIN)/costmodel predict densenet121 --hardware nvidia-h200

test: $(VENV)/.test
	$(BIN)/python -m pytest

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

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
