# Each target makes what it needs by itself: a virtual environment in .venv, and the packages in it.
# Needed on the machine: Python 3.11 or newer, git, make, and a way to PyPI.
#   make demo                     watch the product at work
#   make test ARGS="-k chain -x"  run the tests; ARGS goes to pytest
#   make check                    lint, formatting, types, layers
#   make PYTHON=python3.13 test   name the Python to build .venv with

PYTHON ?= $(firstword $(foreach each,python3 python3.13 python3.12 python3.11,$(if $(shell $(each) -c $(RECENT) 2>/dev/null && echo yes),$(each))))
RECENT := 'import sys; sys.exit(sys.version_info < (3, 11))'
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test check clean
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	$(BIN)/counterfoil demo

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 4 --dist worksteal $(ARGS)

check: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist counterfoil.egg-info

# The files below are stamps: a second run installs nothing unless pyproject.toml has changed.

$(VENV)/installed: pyproject.toml | $(VENV)/made
	@echo 'Installing counterfoil into $(VENV) ...'
	@$(INSTALL) -e .
	@touch $@

$(VENV)/installed-dev: pyproject.toml | $(VENV)/made
	@echo 'Installing counterfoil and its development tools into $(VENV) ...'
	@$(INSTALL) -e '.[dev]'
	@touch $(VENV)/installed $@

$(VENV)/made:
	@python='$(PYTHON)'; \
	{ [ -n "$$python" ] && "$$python" -c $(RECENT) 2>/dev/null; } || { \
	  echo 'counterfoil needs Python 3.11 or newer: install it, or name one with "make PYTHON=/path/to/python3 ...".' >&2; exit 1; }; \
	"$$python" -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$$python cannot make virtual environments: install its venv package (on Debian and Ubuntu: apt install python3-venv)." >&2; exit 1; }; \
	"$$python" -m venv $(VENV)
	@touch $@
