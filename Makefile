# Each target does the set-up it needs, in .venv; PYTHON says which interpreter (3.11 or newer) makes that.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: predict test lint tables clean
.DELETE_ON_ERROR:

predict: $(VENV)/.installed
	$(BIN)/costmodel predict densenet121 --hardware nvidia-h200

test: $(VENV)/.test
	$(BIN)/python -m pytest

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Every table of README and docs/, of the files in docs/ and trained_models/.
tables: $(VENV)/.test
	$(BIN)/python scripts/results.py --write README.md
	$(BIN)/python scripts/accuracy.py --write docs/accuracy.md
	$(BIN)/python scripts/blind_test.py -o docs/data/unseen_h200.csv --section unseen --write docs/accuracy.md
	$(BIN)/python scripts/layers.py --rows docs/data/layers_h200.csv --write docs/accuracy.md
	$(BIN)/python scripts/measure_and_compare.py -o docs/data/compared_h200.jsonl --no-measure --write docs/plans.md
	$(BIN)/python scripts/measure_and_compare.py -o docs/data/moves_h200.jsonl --no-measure --write-moves docs/plans.md
	$(BIN)/python scripts/measure_and_compare.py -o docs/data/others_h200.jsonl --no-measure --write-others docs/plans.md
	$(BIN)/python scripts/memory.py --rows docs/data/memory_h200.json --write docs/memory.md

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
