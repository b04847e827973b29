# make setup  creates .venv with everything, `.venv/bin/barnabas` is the command
# make demo   the pipeline over real data, with kills        make test   five minutes of tests, no Java needed but Spark's
# make late   late and out-of-order events, stateful Python
# make flights  a declared pipeline over the flights, with a kill and a check
# make fuzz   minutes of hostile requests                   make kills  kill -9 under load, KILLS=100 times
# make check  format, lint, types, layers, tidy, all tests   make bench  numbers beside other brokers
# make cdc    change data capture from a real PostgreSQL to Delta tables, with kills and a check
# make chaos  half an hour of faults on three brokers       make storms 200 rounds of members that join, die and pause
# make soak   half an hour of steady load on three brokers  make flaky  chosen tests fifty times on a busy machine

SHELL := /bin/bash
# Tests start thousands of Python processes. Without stored bytecode each one compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE
# PYTHON=/path/to/python3.12 for another one.
PYTHON ?= $(shell tools/choose_python)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# The one list of Debian packages. Only tests use them; each test that needs one is skipped where it is missing,
# and fails there with CI=true. Maven and Java run Apache Kafka beside ours (tests/jvm).
# Prometheus (22 MB) and PostgreSQL (60 MB) are started as services where packages may do that; tests start their own.
# Chromium (400 MB with its libraries) shows the pages of the web console.
# npm comes with some builds of nodejs, which conflict with the package.
DEBIAN_PACKAGES := chromium kcat maven nodejs openjdk-17-jdk-headless postgresql prometheus systemd $(shell command -v npm >/dev/null || echo npm)

.PHONY: setup demo late test check bench fuzz kills format lint types layers debian-packages clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@test -x $(BIN)/python || { python='$(PYTHON)' \
	  && { $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11 setup"; exit 1; }; } \
	  && { $$python -c 'import ensurepip' 2>/dev/null \
	    || { echo "venv is missing (Debian: apt-get install python3-venv)"; exit 1; }; } \
	  && $$python -m venv $(VENV); }
	@echo "installing all packages for contributors into $(VENV): 1.5 GB, 1 to 10 minutes"
	@echo "(to use Barnabas only, see README.md: pip install .)"
	@$(BIN)/pip install --disable-pip-version-check --require-hashes -r requirements.lock \
	  | grep --line-buffered -E '^(Collecting|Installing|Successfully|ERROR)' | cut -c -100; \
	  test $${PIPESTATUS[0]} -eq 0
	@$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup
	$(BIN)/python -m examples.flights.demo $(DEMO)

# PostgreSQL through Debezium, Barnabas and Spark into Delta tables: CDC='--seconds 300 --seed 7' for others.
.PHONY: cdc
cdc: setup
	$(BIN)/python examples/change-data-capture/run.py $(CDC)

# A declared pipeline over the same flights: FLIGHTS='--seconds 120' for a slower year.
.PHONY: flights
flights: setup
	$(BIN)/python -m examples.flights_declared.run $(FLIGHTS)

# LATE='--days 60 --seconds 60' for more.
late: setup
	$(BIN)/python -m examples.late_events.run $(LATE)

# How many processes run tests at once (tests/schedule.py); many tests wait more than they compute.
PROCESSES ?= 3

# A selection; tests/selection.py has the rule, and the output names what is left out.
# One failed test may pass when it is repeated alone (tests/repeating/failed_again.py).
test: setup
	$(BIN)/pytest -n $(PROCESSES) --flaky-max 1 --short

format: setup
	$(BIN)/ruff format

lint: setup
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports --no-cache

check: lint types layers
	$(BIN)/pytest -n $(PROCESSES) --flaky-max 3 --durations 15 --durations-min 10

# What `make check` does beyond `make test`. Together they allow as many flaky tests as `make check`.
.PHONY: rest
rest: lint types layers
	$(BIN)/pytest -n $(PROCESSES) --flaky-max 2 --rest --durations 15 --durations-min 10

# Tests again and again on a busy machine: make flaky TESTS='tests/unit/raft/test_core.py' TIMES=50 BUSY=2
TIMES ?= 50
BUSY ?= 2
.PHONY: flaky
flaky: setup
	@PYTHONPATH=tests $(BIN)/python -m repeating.under_load --times $(TIMES) --busy $(BUSY) "$$TESTS"

# All tests, also those that tests/selection.py leaves out of `make check`: NIGHTLY=tests/spark for some.
.PHONY: nightly
nightly: setup
	$(BIN)/pytest -n $(PROCESSES) --nightly --durations 15 --durations-min 10 $(NIGHTLY)

bench: setup
	$(BIN)/python -m bench.run
	$(BIN)/python -m bench.node
	$(BIN)/python -m bench.node_memory
	$(BIN)/python -m bench.replication --compare
	$(BIN)/python -m bench.links
	$(BIN)/python -m bench.tiered
	$(BIN)/python -m bench.transactions
	$(BIN)/python -m bench.group_protocols
	$(BIN)/python -m bench.share_groups
	$(BIN)/python -m bench.tls
	$(BIN)/python -m bench.clients
	$(BIN)/python -m bench.spark_read
	$(BIN)/python -m bench.spark_stream
	$(BIN)/python -m bench.spark_write
	$(BIN)/python -m bench.spark_tables
	$(BIN)/python -m bench.pipelines
	$(BIN)/python -m bench.scale
	$(BIN)/python -m bench.failover

# Ten minutes, a million frames or more: FUZZ='--seconds 60 --seed 7' for others. Then five minutes of
# attacks on TLS and logins: LOGINS='--seconds 60 --seed 7' for others.
fuzz: setup
	PYTHONPATH=tests $(BIN)/python -m fuzz.campaign $(FUZZ)
	PYTHONPATH=tests $(BIN)/python -m fuzz.login_campaign $(LOGINS)

# Clients that begin TLS handshakes and logins, and do not end them.
HALF_DONE ?= 10000
.PHONY: half-done
half-done: setup
	HALF_DONE=$(HALF_DONE) $(BIN)/pytest -s --timeout 3600 tests/conformance/test_half_done_logins.py

KILLS ?= 100
kills: setup
	KILLS=$(KILLS) $(BIN)/pytest -s --timeout 3600 tests/conformance/test_kill_minus_nine.py

debian-packages:
	@missing=; for p in $(DEBIAN_PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi

# The archives of a release in dist/, tried in fresh environments: RELEASE='--python 3.12' for one Python.
.PHONY: release
release: setup
	$(BIN)/python -m tools.release $(RELEASE)

# The platforms for which pip has a wheel of each dependency: WHEELS='required spark' for some.
.PHONY: wheels
wheels: setup
	$(BIN)/python -m tools.wheels $(WHEELS)

clean:
	rm -rf $(VENV) build dist demo-output cdc-output .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Losses of power from seeds, e.g. make power-loss SEEDS=5000 FIRST=1
SEEDS ?= 1000
FIRST ?= 1
.PHONY: power-loss
power-loss: setup
	PYTHONHASHSEED=0 PYTHONPATH=tests $(BIN)/python -m simulation.power_loss --seeds $(SEEDS) --first $(FIRST)

# Damaged files of a stopped node from seeds, e.g. make flips SEEDS=5000 FIRST=1
.PHONY: flips
flips: setup
	PYTHONHASHSEED=0 PYTHONPATH=tests $(BIN)/python -m simulation.flips --seeds $(SEEDS) --first $(FIRST)

# Faults by chance under load on three brokers, judged by the checker: CHAOS='--minutes 30 --seed N --result FILE.json'
.PHONY: chaos
chaos: setup
	PYTHONPATH=tests $(BIN)/python -m chaos.campaign $(CHAOS)

# Faults by chance of two linked clusters under load, and moves there and back: LINKS='--minutes 30 --seed N'
.PHONY: link-chaos
link-chaos: setup
	PYTHONPATH=tests $(BIN)/python -m chaos.link_campaign $(LINKS)

# Steady mixed load without faults on three brokers, judged by the checkers, with the course of memory, descriptors and
# threads: SOAK='--minutes 30 --seed N --result FILE.json'
.PHONY: soak
soak: setup
	PYTHONPATH=tests $(BIN)/python -m chaos.soak $(SOAK)

# Rebalance storms over every assignor and protocol, judged by the checker: STORMS='--rounds 200 --seed N --result FILE.json'
.PHONY: storms
storms: setup
	PYTHONPATH=tests $(BIN)/python -m storms.campaign $(STORMS)

# Members of share, consumer and streams groups under faults in virtual time, from seeds: SEEDS=500 FIRST=1 WALK=members
.PHONY: group-walks
WALK ?= mixed
group-walks: setup
	PYTHONHASHSEED=0 PYTHONPATH=tests $(BIN)/python -m simulation.groups.share_walk $(FIRST) $$(($(FIRST) + $(SEEDS) - 1)) $(WALK)
	PYTHONHASHSEED=0 PYTHONPATH=tests $(BIN)/python -m simulation.groups.member_walk $(FIRST) $$(($(FIRST) + $(SEEDS) - 1)) $(WALK)
	PYTHONHASHSEED=0 PYTHONPATH=tests $(BIN)/python -m simulation.groups.streams_walk $(FIRST) $$(($(FIRST) + $(SEEDS) - 1)) $(WALK)

# Requests with several things wrong at once, to Apache Kafka and to us, as long as you like:
# make mutations MUTATIONS="--seed 7 --count 20000". The tests run a small, fixed one.
.PHONY: mutations
mutations: setup
	PYTHONPATH=tests $(BIN)/python -m differential.mutations $(MUTATIONS)

# Random sequences of transaction requests to both brokers, from a seed:
# make transaction-walks WALKS="--seed 7 --count 500". The tests run a few, fixed ones.
.PHONY: transaction-walks
transaction-walks: setup
	PYTHONPATH=tests $(BIN)/python -m differential.transaction_walks $(WALKS)

# Write the coverage of the comparison with Apache Kafka into docs/compatibility.md.
.PHONY: compatibility
compatibility: setup
	PYTHONPATH=tests $(BIN)/python -m differential.document
