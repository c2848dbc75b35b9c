# make test and make check need nothing but Python >= 3.11: servers come as wheels, no Docker, no system package.
PYTHON ?= python3
PYTEST_ARGS ?= -n 2 --dist loadgroup
VENV := .venv
BIN := $(VENV)/bin

.PHONY: test check demo bench bench-check faults clean

test: $(VENV)/.test
	$(BIN)/pytest $(PYTEST_ARGS)

check: $(VENV)/.check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/contract
	$(BIN)/python -m benchmarks.budget

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

bench-check: $(VENV)/.check
	$(BIN)/python -m benchmarks.budget

# minutes of clients, servers and networks that fail, and a judge of what they saw
faults: $(VENV)/.test
	$(BIN)/python -m tests.history

demo: $(VENV)/.embedded
	$(BIN)/python -m redisq demo

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# $(VENV)/.EXTRA marks that the package is installed, editable, with that extra; a changed pyproject.toml installs anew
$(VENV)/.%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "redisq needs Python 3.11 or later: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
