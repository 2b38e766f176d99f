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
# The same for what takes a while: a line for each package that is fetched and installed, and errors in full.
# A comma would end the argument of `call`, so lists of extras are written with $(COMMA).
COMMA := ,
PIP_SHOWN = { { $(BIN)/python -m pip --disable-pip-version-check install --progress-bar off $(1) 2>&1; echo "status $$?"; } \
	| awk '/^status [0-9]+$$/ { status = $$2; next } /^Collecting / { print "  " $$2; fflush(); next } \
	  /^(Building|Installing) / { print "  " $$1 " ..."; fflush(); next } { kept[++count] = $$0 } \
	  END { if (status) for (line = 1; line <= count; line++) print kept[line]; exit status }'; }
# The Spark tests share one worker and the rest go to the other.
WORKERS ?= 2
# What `make reproduce` runs (everything unless named), and where it keeps workloads, traces, figures and reports.
EXPERIMENT ?=
OUT ?= reproduction
# What `make reliability` runs: every plan by each strategy with each seed.
RELIABILITY ?= --plan kills --plan stops --plan holes --plan disks --plan large \
	--strategy S0 --strategy S2 --strategy SB --seed 1 --seed 2

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test soak lint bench benchbroker benchsweep reproduce reproducepaper properties results live overload reliability organising together maintenance peers sparkkills faultruns shifts hostile docs changelog release clean

help: ## show this list
	@echo "Braid: publish attributes, subscribe with SQL predicates. Targets:"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1@\2/p' $(MAKEFILE_LIST) | awk -F@ '{ printf "%-14s %s\n", $$1, $$2 }'

setup: $(VENV)/.stamp-core ## make .venv with the braid command in it
	@echo "ready: $(BIN)/braid"

demo: $(VENV)/.stamp-demo ## a network of twelve brokers learns, changes, loses one and loses nothing; two minutes
	@$(BIN)/braid demo $(DEMO)

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

reproduce: $(FAST_STAMP) ## run every experiment of the papers at the quick scale (or EXPERIMENT=multipath), into docs/results/
	@$(FAST)/bin/python -m braid.pipeline.experiments.results_pages --run quick --out $(OUT) --experiment "$(EXPERIMENT)"

reproducepaper: $(FAST_STAMP) ## the same at the papers' own sizes: hours, and it goes on where it was stopped
	@$(FAST)/bin/python -m braid.pipeline.experiments.results_pages --run paper --out $(OUT) --experiment "$(EXPERIMENT)"

properties: $(FAST_STAMP) ## run every failover protocol against 2,000 scenarios with faults; goes on where it was stopped
	@$(FAST)/bin/braid reproduce availability.properties --scale paper --out $(OUT)/availability

results: $(VENV)/.stamp-everything ## make the pages of docs/results/ from the rows stored in benchmarks/
	@$(BIN)/python -m braid.pipeline.experiments.results_pages

live: $(VENV)/.stamp-everything ## compare strategies on twelve brokers while some break, into benchmarks/live.json
	@mkdir -p benchmarks
	@$(BIN)/braid bench live --output benchmarks/live.json

overload: $(VENV)/.stamp-everything ## small queues and too many publications on fifty random trees; fails if anything is lost or stuck
	@BRAID_OVERLOAD_SEEDS=50 $(BIN)/python -m pytest tests/sim/test_overload_worlds.py -q

reliability: $(VENV)/.stamp-everything ## half an hour of kills, stops, holes, lost and full disks; fails if anything is lost or doubled
	@$(BIN)/python -m tests.reliability.run --seconds 30 --brokers 7 --clients 20 $(RELIABILITY)

maintenance: $(VENV)/.stamp-everything ## twelve brokers under load: one is patched, one moves, the whole tree is made another one; half an hour
	@$(BIN)/python -m tests.reliability.run --plan maintenance --seconds 24 --brokers 12 --clients 24 --rate 1100 \
		--filters 2000 --move-by delta --strategy S0 --strategy S2 --seed 1 --seed 2 --seed 3

shifts: $(VENV)/.stamp-everything ## a SHIFT, and a delta-move, with a crash, a lost link or a delay at every step; many minutes
	@$(BIN)/python -m tests.sim.shift_faults
	@$(BIN)/python -m tests.sim.delta_faults

together: $(VENV)/.stamp-everything ## everything at once for twenty minutes: self-organising, plans, kill -9, peers, Spark; nothing lost
	@$(BIN)/python -m tests.reliability.run --plan together --strategy SB --seconds 1200 --brokers 12 --clients 24 \
		--rate 200 $(TOGETHER)

organising: $(VENV)/.stamp-everything ## sixteen brokers make themselves a cheaper tree while interest moves, with a picture; ten minutes
	@mkdir -p build
	@$(BIN)/python -m tests.reliability.organising --picture build/organising.png $(ORGANISING)

peers: $(VENV)/.stamp-everything ## fifty real peers, ten of them killed at once; then a run that drops 0.1 % of messages
	@$(BIN)/python -m tests.reliability.peers --peers 50 --processes 5
	@$(BIN)/python -m tests.reliability.peers --peers 50 --processes 5 --drop 0.001 --rounds 60

sparkkills: $(VENV)/.stamp-everything ## a million rows through Spark on two executors, twenty kills of drivers, executors and brokers
	@$(BIN)/python -m tests.reliability.spark_kills $(SPARKKILLS)

faultruns: $(FAST_STAMP) ## a thousand simulated networks per strategy, two faults at a time; an hour
	@$(FAST)/bin/python -m tests.sim.fault_runs --runs 1000 --processes $(WORKERS) $(foreach each,S0 S1 S2 SH SB,--strategy $(each))

hostile: $(VENV)/.stamp-everything ## attack brokers, and print what each attack cost and what an innocent client saw
	@$(BIN)/python -m tests.hostile.run
	@$(BIN)/python -m tests.hostile.table

docs: $(VENV)/.stamp-everything ## make the site of all documents, with no warning, into site/ (`make test` runs its examples)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict --config-file website/mkdocs.yml
	@echo "open site/index.html"

changelog: $(VENV)/.stamp-everything ## show what the next release has to say, from newsfragments/
	@$(BIN)/python -m towncrier build --draft --version "$$($(BIN)/python -c 'from importlib.metadata import version; print(version("braid-pubsub"))')"

release: $(VENV)/.stamp-everything ## build the wheels and source distributions of both packages into dist/, and look at them
	@rm -rf dist
	@$(BIN)/python -m build --quiet --no-isolation --outdir dist .
	@$(BIN)/python -m build --quiet --no-isolation --outdir dist benchmarks
	@ls -l dist

clean: ## remove the environment, caches and build products
	@rm -rf $(VENV) $(COMPILED) build dist site .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@rm -rf spark-warehouse metastore_db artifacts derby.log benchmarks/tmp
	@find src tests benchmarks -type d \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +
	@echo "clean"

# Each stamp is younger than both pyproject.toml when its packages are installed; touching one of
# them therefore installs again. "everything" contains the other two.

$(VENV)/.stamp-core: pyproject.toml benchmarks/pyproject.toml $(VENV)/.stamp-venv
	@echo "installing braid and its benchmarks"
	@$(call PIP_SHOWN,--editable . --editable benchmarks)
	@touch $@

$(VENV)/.stamp-demo: pyproject.toml benchmarks/pyproject.toml $(VENV)/.stamp-venv
	@echo "installing braid, its dashboard and Spark (a minute or two, about 900 MB)"
	@$(call PIP_SHOWN,--editable '.[demo]' --editable benchmarks)
	@touch $(VENV)/.stamp-core $@

$(VENV)/.stamp-bench: pyproject.toml benchmarks/pyproject.toml $(VENV)/.stamp-venv
	@echo "installing braid, its benchmarks and their rivals"
	@$(call PIP_SHOWN,--editable '.[network]' --editable 'benchmarks[rivals]')
	@touch $(VENV)/.stamp-core $@

$(VENV)/.stamp-everything: pyproject.toml benchmarks/pyproject.toml $(VENV)/.stamp-venv
	@echo "installing braid with Spark, benchmarks and development tools (a minute or two, about 1.2 GB)"
	@$(call PIP_SHOWN,--editable '.[spark$(COMMA)dev]' --editable 'benchmarks[rivals]')
	@touch $(VENV)/.stamp-core $(VENV)/.stamp-bench $(VENV)/.stamp-demo $@

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
