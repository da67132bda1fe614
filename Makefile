# make verify: install and run the main job.  make test: install and run the tests.  make check: before each commit.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
WORKERS ?= 2

.DEFAULT_GOAL := verify
.PHONY: venv verify test test-full check clean

venv: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

verify: $(INSTALLED)
	$(BIN)/hicheck verify

test: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

test-full: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) --timeout 3600

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n $(WORKERS) -q -m "not slow and not heavy"

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
