# All targets use a virtual environment. It is built on first use and rebuilt when its inputs change.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
MUTMUT := mutmut==3.8.0
LOWEST := .venv-lowest
NOT_LIBRARY := dmlmc/experiments dmlmc/reproduce tests/experiments tests/reproduce tests/test_project.py tests/test_wheel.py tests/test_lab.py
# uv installs packages faster than pip does. If it is not there, pip gets it, into .lock-venv.
GET_UV := command -v uv >/dev/null 2>&1 || { "$(PYTHON)" -m venv .lock-venv && .lock-venv/bin/python -m pip install --quiet uv; }
UV := PATH="$$PATH:$(CURDIR)/.lock-venv/bin" uv
LOCK_FLAGS := --extra dev --universal --fork-strategy fewest --no-emit-index-url --no-emit-find-links --no-annotate --no-header
UPGRADE ?= --upgrade
SCALE ?= 1
# Tests and notebooks of small size compile more than they compute. XLA's older emitters, and fewer optimisations, compile
# faster.
FAST_COMPILE := JAX_DISABLE_MOST_OPTIMIZATIONS=1 XLA_FLAGS="$$XLA_FLAGS --xla_cpu_use_fusion_emitters=false"
# Long runs on a CPU are faster with less optimisation (README, Devices), and with the widest vectors of the machine. What
# the user sets comes last, and wins.
FAST_RUN := XLA_FLAGS="--xla_backend_optimization_level=1 --xla_cpu_prefer_vector_width=512 $$XLA_FLAGS"

.PHONY: help setup test test-lowest reproduce quick lab test-lab notebooks bench mutants lock format
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 18

setup: $(VENV)/.ready  ## build the environment in .venv (other targets do this when needed)

# Bytecode is compiled on all cores. Without it every process parses jax anew where Python is told to write none
# (PYTHONDONTWRITEBYTECODE), and the tests start many processes.
$(VENV)/.ready: requirements.lock pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "dmlmc needs Python 3.11 or newer, and $(PYTHON) is $$("$(PYTHON)" --version 2>&1); try: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@rm -rf $(VENV)
	@{ $(GET_UV) && \
	  $(UV) venv --quiet --seed --python "$(PYTHON)" $(VENV) && \
	  $(UV) pip install --quiet --python $(RUN) -r requirements.lock && \
	  $(UV) pip install --quiet --python $(RUN) --no-deps --no-build-isolation -e .; } || { \
	  echo "uv cannot install the packages; pip does, which takes longer"; rm -rf $(VENV) && \
	  "$(PYTHON)" -m venv $(VENV) && \
	  $(RUN) -m pip install --quiet --disable-pip-version-check --no-compile -r requirements.lock && \
	  $(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .; }
	@$(RUN) -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $@

test: setup  ## run the tests and the notebooks (minutes)
	$(FAST_COMPILE) $(RUN) -m pytest -n auto --dist loadfile --no-loadscope-reorder

# uv takes the lowest version of each package in pyproject.toml, and the newest version of indirect requirements. Tests of
# the lock file, the notebooks and the figures are left out. Warnings are not errors here, because old packages emit
# deprecation warnings.
test-lowest: $(LOWEST)/.ready  ## run the library's tests with the lowest versions in pyproject.toml, in .venv-lowest
	$(LOWEST)/bin/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -W default tests dmlmc $(NOT_LIBRARY:%=--ignore=%)

$(LOWEST)/.ready: pyproject.toml
	@rm -rf $(LOWEST)
	@$(GET_UV)
	$(UV) venv --quiet --python "$(PYTHON)" $(LOWEST)
	$(UV) pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct -e '.[dev]'
	@touch $@

reproduce: setup  ## run the notebooks at the paper's size, into figures/, notebooks/executed/paper/ and the README
	$(FAST_RUN) $(RUN) -m dmlmc.reproduce --profile paper

quick: setup  ## run the notebooks at small size, into figures/quick/
	$(FAST_COMPILE) $(RUN) -m dmlmc.reproduce --profile quick

lab: setup  ## open JupyterLab on the start notebook
	$(RUN) -m jupyterlab $$([ "$$(id -u)" -ne 0 ] || echo --allow-root) notebooks/00_start_here.ipynb

test-lab: setup  ## test two notebooks in JupyterLab with Chromium (Debian: apt-get install chromium, or set CHROMIUM)
	DMLMC_LAB=1 $(RUN) -m pytest -rs tests/test_lab.py

notebooks: setup  ## run the notebooks at small size and write the cleaned outputs into them, to be committed
	$(FAST_COMPILE) $(RUN) -m dmlmc.reproduce --profile quick --in-place --force

bench: setup  ## measure compile time, seconds and bytes per step, into figures/data/benchmarks.json (larger on a GPU: SCALE=64)
	$(RUN) -m tests.benchmarks --scale $(SCALE)

mutants: setup  ## mutation testing, into tests/MUTANTS.md (installs mutmut into .venv; a second or more for each mutant)
	@$(RUN) -m pip install --quiet --disable-pip-version-check -c requirements.lock $(MUTMUT)
	$(FAST_COMPILE) $(RUN) -m tests.mutants

lock:  ## resolve the newest versions into requirements.lock and environment.yml (UPGRADE= adds only what is missing)
	@$(GET_UV)
	$(UV) pip compile pyproject.toml $(LOCK_FLAGS) $(UPGRADE) --quiet -o requirements.lock
	@{ printf 'name: dmlmc\nchannels:\n  - conda-forge\ndependencies:\n  - python>=3.11,<3.14\n  - pip\n  - pip:\n'; \
	   sed 's/.*/      - "&"/' requirements.lock; printf '      - "-e ."\n'; } > environment.yml

format: setup  ## format and lint the code and the notebooks
	$(RUN) -m ruff format . && $(RUN) -m ruff check --fix .
