# Every target sets up what it needs, once, on a machine with Python 3.11+, pip and make.
#   make demo     the questions people ask most, each answered     (installs wrt and torch)
#   make test     lint, types, tests                               (installs everything)
#   make bench    what wrt costs next to hand-written code
#   make corpus   every operator of the frameworks' own test databases
#   make docs     the documentation site, in site/
#   make page     the page of the microscope, bundled              (installs Node.js by pip where missing)

PYTHON ?= python3
JOBS   ?= 2
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check install -c constraints.txt
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q
# pytest answers 5 when a folder holds no test yet
MAYBE  := || [ $$? -eq 5 ]

.PHONY: demo test bench corpus docs page lint types tests tests-jax tests-tensorflow clean
.DEFAULT_GOAL := test

# ---- set-up: a stamp file per level, older than pyproject.toml or constraints.txt means again ----

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "wrt needs Python 3.11 or newer: make PYTHON=python3.12")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "setting up $(VENV) with wrt and torch (once)"
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation -e '.[torch]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "setting up $(VENV) with wrt, torch, TensorFlow, JAX and the tools (once, a few minutes)"
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation -e '.[dev]'
	@touch $(VENV)/.demo $@

$(VENV)/.rivals: $(VENV)/.dev
	@echo "adding what to measure against (once)"
	@$(PIP) --no-build-isolation -e '.[dev,rivals]'
	@touch $@

$(VENV)/.corpus: $(VENV)/.dev
	@echo "adding other people's models (once)"
	@$(PIP) --no-build-isolation -e '.[dev,corpus]'
	@touch $@

# The page is built from frontend/ once, and again when a source is newer.
PAGE := src/wrt/_microscope/assets/microscope.js

$(PAGE): $(shell find frontend/src -type f 2>/dev/null) frontend/package-lock.json frontend/build.mjs frontend/build.py | $(BIN)/python
	@echo "building the page of the microscope (once)"
	@$(BIN)/python frontend/build.py

# ---- targets: `timed` runs the sub-targets, set-up included, and says how long it all took ----

define timed
@start=$$(date +%s); $(MAKE) --no-print-directory $(1) && echo "make $@: $$(( $$(date +%s) - start )) s"
endef

demo:
	$(call timed,run-demo)
test:
	$(call timed,$(VENV)/.dev lint types page chromium tests)
bench:
	$(call timed,run-bench)
corpus:
	$(call timed,run-corpus)
docs:
	$(call timed,build-docs)

page: $(PAGE)

# The browser tests use the system's Chromium; they say so and are skipped where there is none (and fail with CI=true).
.PHONY: run-demo run-bench run-corpus build-docs page-if-possible chromium

page-if-possible:
	@$(MAKE) --no-print-directory page || echo "going on without the page"

chromium:
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	if command -v apt-get >/dev/null; then \
	  echo "installing Chromium for the browser tests (once)"; \
	  root=$$([ "$$(id -u)" = 0 ] || echo "sudo -n"); \
	  { $$root apt-get -qq update && $$root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install chromium; } >/dev/null 2>&1; \
	fi; command -v chromium >/dev/null || echo "no Chromium here, and none could be installed: the browser tests will be skipped"

run-demo: $(VENV)/.demo page-if-possible
	@$(BIN)/wrt demo

run-bench: $(VENV)/.rivals
	@$(BIN)/python -m benchmarks $(ARGS)

run-corpus: $(VENV)/.corpus
	@$(BIN)/python -m corpus $(ARGS)

build-docs: $(VENV)/.dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet --site-dir site

lint: $(VENV)/.dev
	@$(BIN)/ruff check .

types: $(VENV)/.dev
	@$(BIN)/mypy

# TensorFlow and JAX have processes of their own, side by side: three frameworks in one are slow and heavy.
tests: $(VENV)/.dev
	@$(PYTEST) -n $(JOBS) --dist worksteal tests --ignore=tests/tensorflow --ignore=tests/jax $(ARGS) $(MAYBE)
	@$(MAKE) --no-print-directory --output-sync=target -j $(JOBS) tests-jax tests-tensorflow

tests-jax tests-tensorflow: tests-%: $(VENV)/.dev
	@$(PYTEST) tests/$* $(ARGS) $(MAYBE)

clean:
	rm -rf $(VENV) frontend/node_modules src/wrt/_microscope/assets site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
