# Needs Python 3.11 or newer, make and a package index; everything else is made here.
.DEFAULT_GOAL := help
.PHONY: help run once test check gates lock clean

PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11 python3.14,$(shell \
	command -v $(name) >/dev/null 2>&1 && $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
VENV := .venv
BIN := $(VENV)/bin
# The stamp is a copy of the lock file the environment was made from.
STAMP := $(VENV)/made-from.lock
LOCK := requirements-dev.lock
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet
ARGS ?=

help:  ## this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /\1|/' | while IFS='|' read -r name text; do \
		printf '  make %-7s %s\n' "$$name" "$$text"; done

# The parent's number is that of make: without it, what make started would outlive a make that is killed.
run: $(STAMP)  ## start everything on this machine and stay; Ctrl-C stops it
	exec $(BIN)/python manage.py dev --parent $$PPID $(ARGS)

once: $(STAMP)  ## start everything, let one lease live and end, stop
	exec $(BIN)/python manage.py dev --parent $$PPID --once $(ARGS)

test: $(STAMP)  ## the fast tests
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist worksteal $(ARGS)

check: gates  ## all gates and all tests
	$(BIN)/python -m pytest $(if $(SLOW_ONLY),-m slow) -n 2 --dist loadfile $(ARGS)

gates: $(STAMP)  ## format, lint, types, imports, dependencies, migrations
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/python manage.py check --fail-level WARNING
	$(BIN)/python manage.py makemigrations --check --dry-run

lock: $(STAMP)  ## write both lock files anew from pyproject.toml
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header \
		--no-annotate --no-emit-index-url --quiet --upgrade --output-file requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra servers --group dev --universal --python-version 3.11 --generate-hashes --no-header \
		--no-annotate --no-emit-index-url --quiet --upgrade --output-file requirements-dev.lock

clean:  ## remove what was made here
	rm -rf $(VENV) .dev build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# Made anew when the lock's content changes, not when a checkout touches its time.
$(STAMP): FORCE
	@cmp -s $(LOCK) $@ || $(MAKE) --no-print-directory environment

.PHONY: FORCE environment
FORCE:

environment:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV) || { echo "$(PYTHON) -m venv failed; the system's venv package may be missing (Debian: apt install python3-venv)" >&2; exit 1; }
	@echo "installing what is in $(LOCK): about 530 MB, takes a minute or two"
	@$(PIP) install --require-hashes --only-binary :all: -r $(LOCK)
	@cp $(LOCK) $(STAMP)
