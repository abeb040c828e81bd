# Everything a developer or a first user runs. Needs make and Python 3.11 or newer, no more.
# Choose another interpreter with `make run PYTHON=python3.13`, pass options on with ARGS="...".

PYTHON ?= python3
VENV ?= .venv
UV ?= uv
ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# The stamps say which lock the environment was last filled from; newer locks refill it.
RUN_STAMP := $(VENV)/.stamp-run
DEV_STAMP := $(VENV)/.stamp-dev

.DEFAULT_GOAL := help
.PHONY: help run demo-engine test lint types ci bench bench-alerts bench-live fuzz test-browser test-engine screenshots traps format lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(RUN_STAMP) ## Start exporter and dashboard on loopback with demo data
	@$(BIN)/prefixscope demo $(ARGS)

demo-engine: $(RUN_STAMP) ## Start a real vLLM on the CPU with traffic (installs 3.5 GB once)
	@$(BIN)/python -m prefixscope.demo_engine $(ARGS)

# In order of name: by number of tests, files of one long test would all come last. Programs that
# tests start may keep their bytecode: else each compiles all of ours anew, half of its start.
test: $(DEV_STAMP) ## Run all tests that need nothing but Python
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(DEV_STAMP) ## Check style (ruff) and who may import whom (import-linter)
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports

types: $(DEV_STAMP) ## Check types (mypy --strict)
	@$(BIN)/mypy

ci: lint types test ## Everything the continuous integration runs

bench: $(DEV_STAMP) ## Run the benchmarks, each against its baseline (minutes)
	@set -e; for script in bench/bench_*.py; do \
	  echo "== $$script"; $(BIN)/python -m "bench.$$(basename $$script .py)" $(ARGS); done

bench-alerts: $(DEV_STAMP) ## Judge drops on traffic with known faults (hours; ARGS="--seeds 21-22 --keep DIR")
	@$(BIN)/python -m bench.alerts.score $(ARGS)

bench-live: $(DEV_STAMP) ## Drive two real vLLM and a router, and set the model beside them (minutes; needs an engine)
	@$(BIN)/python -m bench.bench_live $(ARGS)

fuzz: $(DEV_STAMP) ## Damage 200,000 inputs of every parser (minutes; ARGS="--inputs 5000")
	@$(BIN)/python -m tests.fuzz.run $(ARGS)

test-browser: $(DEV_STAMP) ## Open every page in Chromium (needs chromium on the path)
	@$(BIN)/python -m pytest -m browser $(ARGS)

test-engine: $(DEV_STAMP) ## Compare logs and counters of a real vLLM, then behind LiteLLM (installs 4.3 GB once)
	@$(BIN)/python -m pytest -m engine -s $(ARGS)

URL ?= http://127.0.0.1:8501
OUT ?= screenshots
screenshots: $(DEV_STAMP) ## Photograph every page of a running dashboard (URL=, OUT=)
	@$(BIN)/python tests/browser/screenshots.py --url $(URL) --out $(OUT) $(ARGS)

traps: $(DEV_STAMP) ## Rewrite docs/traps.md from the names of the tests
	@$(BIN)/python tests/unit_house/covered_traps.py

format: $(DEV_STAMP) ## Sort imports and apply ruff's safe fixes
	@$(BIN)/ruff check --fix .

LOCK := $(UV) pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
  --generate-hashes --no-emit-index-url --no-header --annotation-style line
lock: ## Renew the hashed locks from pyproject.toml (needs uv; ARGS=--upgrade for newer)
	$(LOCK) $(ARGS) --extra dev pyproject.toml --output-file requirements-dev.txt
	$(LOCK) --constraint requirements-dev.txt pyproject.toml --output-file requirements.txt
	printf 'hatchling\neditables\n' | \
	  $(LOCK) --constraint requirements-dev.txt - --output-file requirements-build.txt

clean: ## Remove what tests and builds leave behind (the environment and data stay)
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# ---------------------------------------------------------------- the environment

# No build isolation: the build backend comes from a hashed lock like everything else.
$(RUN_STAMP): requirements.txt requirements-build.txt pyproject.toml
	$(create-environment)
	@$(PIP) install --require-hashes -r requirements.txt -r requirements-build.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV_STAMP): requirements-dev.txt pyproject.toml
	$(create-environment)
	@$(PIP) install --require-hashes -r requirements-dev.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

define create-environment
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
  echo "prefixscope needs Python 3.11 or newer, and '$(PYTHON)' is" \
    "$$($(PYTHON) --version 2>&1 || true)." >&2; \
  echo "Name a newer one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
@echo "Filling $(VENV) (first time: a minute or two) ..."
@$(PYTHON) -m venv $(VENV)
endef
