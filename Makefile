# Every target sets up what it needs, once, on a machine with Python 3.11+, pip and make.
#   make demo     fifteen questions, asked and answered            (installs wrt and torch)
#   make test     lint, types, tests                               (installs everything)
#   make bench    what wrt costs next to hand-written code
#   make corpus   every operator of the frameworks' own test databases
#   make docs     the documentation site, in site/

PYTHON ?= python3
JOBS   ?= 2
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check install -c constraints.txt
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q
# pytest answers 5 when a folder holds no test yet
MAYBE  := || [ $$? -eq 5 ]

.PHONY: demo test bench corpus docs lint types tests clean
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

# ---- targets: `timed` runs the sub-targets, set-up included, and says how long it all took ----

define timed
@start=$$(date +%s); $(MAKE) --no-print-directory $(1) && echo "make $@: $$(( $$(date +%s) - start )) s"
endef

demo:
	$(call timed,run-demo)
test:
	$(call timed,$(VENV)/.dev lint types tests)
bench:
	$(call timed,run-bench)
corpus:
	$(call timed,run-corpus)
docs:
	$(call timed,build-docs)

.PHONY: run-demo run-bench run-corpus build-docs

run-demo: $(VENV)/.demo
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

# TensorFlow and JAX have processes of their own: three frameworks in one are slow and heavy.
tests: $(VENV)/.dev
	@$(PYTEST) -n $(JOBS) --dist worksteal tests --ignore=tests/tensorflow --ignore=tests/jax $(ARGS) $(MAYBE)
	@if [ -d tests/tensorflow ]; then $(PYTEST) tests/tensorflow $(ARGS) $(MAYBE); fi
	@if [ -d tests/jax ]; then $(PYTEST) tests/jax $(ARGS) $(MAYBE); fi

clean:
	rm -rf $(VENV) site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
