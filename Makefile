# `make demo` and `make test` do all the set-up themselves, once: a virtual environment with the pinned versions.
# PYTHON chooses the interpreter, VENV the environment's folder, JOBS the number of test processes. TORCH_INDEX names a
# further package index, such as one with wheels of PyTorch without CUDA, of which pip then takes the pinned version.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
TORCH_INDEX ?=
# What the tests need, and what the other targets need besides
TESTED := plot,bayesian,frames,files,vision,text,experiments,test
EXTRAS := $(TESTED),docs

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
UNFINISHED := $(VENV)/.unfinished
# What the stamp has of what it was installed from: files that are newer, but the same, need no installation
WANTED = $$(cat setup.cfg pyproject.toml constraints.txt | cksum) $(EXTRAS)

# One thread a process: the matrices are small, and the processes share the cores.
TEST_ENV := OMP_NUM_THREADS=1 MPLBACKEND=Agg
# The plainest arithmetic that the libraries have, on two threads: sums are rounded otherwise than on this processor.
# Threads that wait must not spin, or they take the cores from the other test process.
PLAIN_ENV := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE OPENBLAS_CORETYPE=Nehalem \
  OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive MPLBACKEND=Agg
DOCS_ENV = $(TEST_ENV)

# $(1): name of the environment, $(2): uv's resolution. Bytecode is compiled at once: a warning of a library's syntax is not ours.
define test_resolved
	$(BIN)/uv venv -q --seed --clear --python $(BIN)/python $(VENV)-$(1)
	$(BIN)/uv pip install -q --compile-bytecode --python $(VENV)-$(1)/bin/python --resolution $(2) '.[$(TESTED)]'
	$(TEST_ENV) $(VENV)-$(1)/bin/python -m pytest -n $(JOBS) $(TEST_ARGS)
endef

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
# Bytecode is kept, whatever the environment says: every run of the tests, and every process that they start, reads it.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install demo demo-quick bench-quick test test-plain test-lowest test-latest mutants lint docs docs-plain clean

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(INSTALLED) ## Create the virtual environment and install the pinned versions (the targets below do so themselves)

demo: $(INSTALLED) ## Fill a table, train networks, assess one; report.html in runs/demo (DEMO_ARGS="..." adds options)
	$(TEST_ENV) $(BIN)/python -m experiments demo $(DEMO_ARGS)

demo-quick: $(INSTALLED) ## The same in a minute on two quiet cores, into runs/demo-quick, to see that everything works
	$(TEST_ENV) $(BIN)/python -m experiments demo --quick --out runs/demo-quick $(DEMO_ARGS)

bench-quick: $(INSTALLED) ## Rerun one cell of TSI-Bench in a minute or two (CGP_DATA=FOLDER has airquality/AirQualityUCI.csv.xz)
	@test -n "$$CGP_DATA" || { echo "bench-quick: expected CGP_DATA, a folder with airquality/AirQualityUCI.csv.xz (UCI 360)"; exit 2; }
	$(BIN)/pip install -q --no-deps pygrinder==0.7 tsdb==0.8
	$(BIN)/python -m experiments.studies.benchmarks tsi --out runs/bench-quick --datasets [ItalyAir] --patterns [point09] --maskings 2 --whole false

test: $(INSTALLED) ## Run the default tests and the doctests (TEST_ARGS="-m slow" for others)
	$(TEST_ENV) $(BIN)/python -m pytest -n $(JOBS) $(TEST_ARGS)

test-plain: $(INSTALLED) ## Run the tests and doctests that train or print numbers in plainer arithmetic: they must come out the same
	$(PLAIN_ENV) $(BIN)/python -m pytest -n $(JOBS) -m "trains and not slow and not gpu and not data" tests
	$(PLAIN_ENV) $(BIN)/python -m pytest -n $(JOBS) cgp models

test-lowest: $(INSTALLED) ## Run the default tests on the lowest versions that setup.cfg allows, in an environment of their own
	$(call test_resolved,lowest,lowest-direct)

test-latest: $(INSTALLED) ## Run the default tests on the newest versions that setup.cfg allows
	$(call test_resolved,latest,highest)

mutants: $(INSTALLED) ## Change the library in MUTANTS small ways (200) and count the changes that no test notices
	$(TEST_ENV) $(BIN)/python -m tests.mutants_in_place --sample $(or $(MUTANTS),200)

lint: $(INSTALLED) ## Check style, docstrings, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(INSTALLED) ## Run the code of the pages and build them into docs/_build/html, four minutes; a warning is an error
	@echo "Running the code of the pages, then building docs/_build/html: four minutes on two quiet cores, longer on busy ones"
	$(DOCS_ENV) $(BIN)/python -m sphinx -W --keep-going -q -j $(JOBS) -b html docs docs/_build/html
	@echo "Built: docs/_build/html/index.html"

docs-plain: DOCS_ENV = $(PLAIN_ENV)
docs-plain: docs ## The same in plainer arithmetic: the pages must print the same

clean: ## Remove what was built, but neither the environment nor any run
	rm -rf build dist cgp.egg-info $(VENV)-lowest $(VENV)-latest docs/_build docs/gallery .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find cgp models experiments tests docs -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp comes last, so that a half-finished install is never taken for done. An environment that was cut off while
# it was first filled is thrown away: pip would take its half-written packages for whole ones.
$(INSTALLED): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "cgp needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo not there)." >&2; \
	  echo "Name another interpreter: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@if [ -e $(UNFINISHED) ]; then echo "The last installation was cut off: starting afresh"; rm -rf $(VENV); fi
	@[ -e $(BIN)/python ] || { echo "Creating $(VENV)" && mkdir -p $(VENV) && rm -f $@ && touch $(UNFINISHED) && $(PYTHON) -m venv $(VENV); }
	@[ "$$(cat $@ 2>/dev/null)" = "$(WANTED)" ] || { \
	  echo "Installing the pinned versions into $(VENV): some minutes, 6.4 GB where PyTorch comes with CUDA (4 GB of it; TORCH_INDEX=... leaves it out)"; \
	  quiet=-q; [ ! -t 1 ] || quiet=; \
	  $(BIN)/python -m pip install $$quiet $(TORCH_INDEX:%=--extra-index-url %) -c constraints.txt -e '.[$(EXTRAS)]' && \
	  rm -f $(UNFINISHED) && echo "$(WANTED)" > $@; }
	@touch $@
