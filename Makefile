# Everything here works from a clean clone: each target makes the environment it needs.
# Choose an interpreter with `make setup PYTHON=/path/to/python3.12`.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
# The same with the hottest modules compiled; it borrows the packages of the other one.
COMPILED := .venv-compiled
SOURCES := $(shell find src/braid -name '*.py' 2>/dev/null)
# Experiments and sweeps take the compiled build where it is there, brought up to date first.
FAST := $(if $(wildcard $(COMPILED)/.stamp),$(COMPILED),$(VENV))
FAST_STAMP := $(if $(wildcard $(COMPILED)/.stamp),$(COMPILED)/.stamp,$(VENV)/.stamp-everything)
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# The Spark tests share one worker and the rest go to the other.
WORKERS ?= 2
# What `make reproduce` runs, how large, and where it keeps workloads, traces, figures and the report.
EXPERIMENT ?= multipath
SCALE ?= paper
OUT ?= reproduction
# What `make reliability` runs: every plan by each strategy with each seed.
RELIABILITY ?= --plan kills --plan stops --plan holes --plan disks --plan large \
	--strategy S0 --strategy S2 --strategy SB --seed 1 --seed 2

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test soak lint bench benchbroker benchsweep reproduce reproducetable live overload reliability peers sparkkills faultruns shifts hostile docs clean

help: ## show this list
	@echo "Braid: publish attributes, subscribe with SQL predicates. Targets:"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1@\2/p' $(MAKEFILE_LIST) | awk -F@ '{ printf "%-14s %s\n", $$1, $$2 }'

setup: $(VENV)/.stamp-core ## make .venv with the braid command in it
	@echo "ready: $(BIN)/braid"

demo: $(VENV)/.stamp-core ## run the embedded bus on a stock ticker for about 20 seconds
	@$(BIN)/braid demo

test: $(VENV)/.stamp-everything ## run the tests, Spark's included; `make soak` has the longest ones
	@echo "testing with $(WORKERS) workers"
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not soak" $(PYTEST_ARGS)

soak: $(VENV)/.stamp-everything ## the longer tests that `make test` leaves out: real brokers and overloaded worlds, minutes
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m soak $(PYTEST_ARGS)

compiled: $(COMPILED)/.stamp ## make .venv-compiled, where the hottest modules are compiled with mypyc (a minute)
	@$(COMPILED)/bin/braid --version

testcompiled: $(COMPILED)/.stamp ## run all tests with the compiled modules
	@$(COMPILED)/bin/braid --version
	@$(COMPILED)/bin/python -m pytest -n $(WORKERS) --dist loadgroup -m "not soak" $(PYTEST_ARGS)

lint: $(VENV)/.stamp-everything ## check format, style and types
	@echo "checking the format"
	@$(BIN)/ruff format --check .
	@echo "checking the style"
	@$(BIN)/ruff check .
	@echo "checking the types"
	@$(BIN)/mypy --strict src benchmarks/src

bench: $(VENV)/.stamp-bench ## measure matching against its rivals, into benchmarks/matching.json
	@mkdir -p benchmarks
	@$(BIN)/braid bench matching --output benchmarks/matching.json

benchbroker: $(VENV)/.stamp-bench ## measure brokers against their rivals, into benchmarks/broker.json
	@mkdir -p benchmarks
	@$(BIN)/braid bench broker --install
	@$(BIN)/braid bench broker --output benchmarks/broker.json

benchsweep: $(FAST_STAMP) ## measure a sweep of simulations on two cores against one, into benchmarks/sweep.json
	@mkdir -p benchmarks
	@$(FAST)/bin/python -m braid_bench.sweep --output benchmarks/sweep.json

reproduce: $(FAST_STAMP) ## run the experiments of the papers at their own sizes, into reproduction/
	@$(FAST)/bin/braid reproduce $(EXPERIMENT) --scale $(SCALE) --out $(OUT)

reproducetable: $(FAST_STAMP) ## Table 2 of the multipath paper at its own size, into benchmarks/multipath_table2.json
	@mkdir -p benchmarks
	@$(FAST)/bin/braid reproduce multipath.table2 --scale paper --out $(OUT) --json > benchmarks/multipath_table2.json.tmp
	@mv benchmarks/multipath_table2.json.tmp benchmarks/multipath_table2.json

live: $(VENV)/.stamp-everything ## compare strategies on twelve brokers while some break, into benchmarks/live.json
	@mkdir -p benchmarks
	@$(BIN)/braid bench live --output benchmarks/live.json

overload: $(VENV)/.stamp-everything ## small queues and too many publications on fifty random trees; fails if anything is lost or stuck
	@BRAID_OVERLOAD_SEEDS=50 $(BIN)/python -m pytest tests/sim/test_overload_worlds.py -q

reliability: $(VENV)/.stamp-everything ## half an hour of kills, stops, holes, lost and full disks; fails if anything is lost or doubled
	@$(BIN)/python -m tests.reliability.run --seconds 30 --brokers 7 --clients 20 $(RELIABILITY)

shifts: $(VENV)/.stamp-everything ## a SHIFT with a crash, a lost link or a delay at every step; minutes
	@$(BIN)/python -m tests.sim.shift_faults

peers: $(VENV)/.stamp-everything ## fifty real peers, ten of them killed at once; then a run that drops 0.1 % of messages
	@$(BIN)/python -m tests.reliability.peers --peers 50 --processes 5
	@$(BIN)/python -m tests.reliability.peers --peers 50 --processes 5 --drop 0.001 --rounds 60

sparkkills: $(VENV)/.stamp-everything ## a million rows through Spark on two executors, twenty kills of drivers, executors and brokers
	@$(BIN)/python -m tests.reliability.spark_kills $(SPARKKILLS)

faultruns: $(VENV)/.stamp-everything ## a thousand simulated networks per strategy, two faults at a time; an hour
	@$(BIN)/python -m tests.sim.fault_runs --runs 1000 $(foreach each,S0 S1 S2 SH SB,--strategy $(each))

hostile: $(VENV)/.stamp-everything ## attack brokers, and print what each attack cost and what an innocent client saw
	@$(BIN)/python -m tests.hostile.run
	@$(BIN)/python -m tests.hostile.table

docs: $(VENV)/.stamp-everything ## run every example in the README and the docs
	@echo "running the examples in README.md and docs/"
	@$(BIN)/python -m pytest tests/docs

clean: ## remove the environment, caches and build products
	@rm -rf $(VENV) $(COMPILED) build dist site .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@rm -rf spark-warehouse metastore_db artifacts derby.log benchmarks/tmp
	@find src tests benchmarks -type d \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +
	@echo "clean"

# Each stamp is younger than both pyproject.toml when its packages are installed; touching one of
# them therefore installs again. "everything" contains the other two.

$(VENV)/.stamp-core: pyproject.toml benchmarks/pyproject.toml $(VENV)/.stamp-venv
	@echo "installing braid and its benchmarks"
	@$(PIP) --editable . --editable benchmarks
	@touch $@

$(VENV)/.stamp-bench: pyproject.toml benchmarks/pyproject.toml $(VENV)/.stamp-venv
	@echo "installing braid, its benchmarks and their rivals"
	@$(PIP) --editable '.[network]' --editable 'benchmarks[rivals]'
	@touch $(VENV)/.stamp-core $@

$(VENV)/.stamp-everything: pyproject.toml benchmarks/pyproject.toml $(VENV)/.stamp-venv
	@echo "installing braid with Spark, benchmarks and development tools (a minute or two, about 1.2 GB)"
	@$(PIP) --editable '.[spark,dev]' --editable 'benchmarks[rivals]'
	@touch $(VENV)/.stamp-core $(VENV)/.stamp-bench $@

# The compiled build is a copy of the package, so it is made again whenever the source has changed. Its
# environment has no other packages of its own: it finds those of the other environment behind it.
$(COMPILED)/.stamp: $(VENV)/.stamp-everything hatch_build.py pyproject.toml $(SOURCES)
	@echo "compiling (a minute)"
	@rm -rf $(COMPILED)
	@$(BIN)/python -m venv --without-pip $(COMPILED)
	@set -eu; \
	paths='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	own=$$($(COMPILED)/bin/python -c "$$paths"); \
	printf 'import site; site.addsitedir("%s")\n' "$$($(BIN)/python -c "$$paths")" > "$$own/borrowed.pth"; \
	BRAID_COMPILED=1 $(PIP) --no-deps --no-build-isolation --target "$$own" .; \
	printf '#!%s\nimport sys\n\nfrom braid.cli import main\n\nsys.exit(main())\n' "$(CURDIR)/$(COMPILED)/bin/python" > $(COMPILED)/bin/braid; \
	chmod +x $(COMPILED)/bin/braid
	@touch $@

# An environment whose interpreter has gone (after an upgrade, or a move of the clone) is made anew.
WORKS := import sys; sys.exit(sys.version_info < (3, 11) or sys.prefix == sys.base_prefix)
ifneq ($(shell $(BIN)/python -c '$(WORKS)' 2>/dev/null && echo yes),yes)
.PHONY: $(VENV)/.stamp-venv
endif

# A candidate is run, not just looked up: version managers leave commands that only print an error.
$(VENV)/.stamp-venv:
	@set -eu; \
	if $(BIN)/python -c '$(WORKS)' >/dev/null 2>&1; then exit 0; fi; \
	candidates="$(PYTHON)"; \
	if [ -z "$$candidates" ]; then candidates="python3.12 python3.11 python3.13 python3"; fi; \
	chosen=""; without_venv=""; \
	for candidate in $$candidates; do \
	  "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue; \
	  if "$$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then chosen=$$candidate; break; fi; \
	  if [ -z "$$without_venv" ]; then without_venv=$$candidate; fi; \
	done; \
	if [ -z "$$chosen" ] && [ -n "$$without_venv" ]; then \
	  package=$$("$$without_venv" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
	  echo "$$without_venv fits, but it cannot make virtual environments: its module ensurepip is missing." >&2; \
	  echo "On Debian or Ubuntu:  sudo apt-get install $$package   then run make again." >&2; \
	  exit 1; \
	fi; \
	if [ -z "$$chosen" ]; then \
	  echo "Braid needs Python 3.11 or newer; none was found (tried: $$candidates)." >&2; \
	  echo "On Debian or Ubuntu:  sudo apt-get install python3 python3-venv   (Debian 12, Ubuntu 24.04 or newer)" >&2; \
	  echo "With one elsewhere:   make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3.12" >&2; \
	  exit 1; \
	fi; \
	echo "making $(VENV) with $$("$$chosen" --version) ($$chosen)"; \
	"$$chosen" -m venv --clear $(VENV)
	@$(PIP) --upgrade 'pip>=24.1'
	@touch $@
