# What a bare machine must have: a Rust toolchain, gcc and g++, make, Python 3 with venv, and the way to the package
# registries. CMake and pytest are installed into target/venv.
#
#   make build    the library, the command and the example programs
#   make demo     trains on 4 workers and runs the all-gather from C and from Python
#   make test     everything that must hold before a change is merged
#   make loom     the models of threads that wait for each other, in every order; part of make test
#   make soak     the long runs
#   make bench-peers   lays muster beside Open MPI and Gloo, which it installs from Debian, and writes docs/performance.md
#   make header   writes include/muster.h anew from src/ffi
#   make clean

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := build

# With an empty home a cargo that is rustup's finds no toolchain; the one it was installed with lies beside its own folder.
ifeq ($(shell cargo --version >/dev/null 2>&1 && echo runs),)
RUSTUP_BESIDE := $(abspath $(dir $(shell command -v cargo))/../../.rustup)
ifneq ($(wildcard $(RUSTUP_BESIDE)/settings.toml),)
export RUSTUP_HOME := $(RUSTUP_BESIDE)
endif
endif

TARGET := $(CURDIR)/target
export CARGO_TARGET_DIR := $(TARGET)
RELEASE := $(TARGET)/release
VENV := $(TARGET)/venv
PYTHON := $(VENV)/bin/python
CMAKE := $(VENV)/bin/cmake
CTEST := $(VENV)/bin/ctest
JOBS := $(shell nproc)
STRICT := -DCMAKE_COMPILE_WARNING_AS_ERROR=ON

.PHONY: build library examples ctests demo test fmt clippy rust-tests loom ctest pytest header soak bench-peers clean

## Build

build: library examples

library:
	cargo build --release
	ln -sf libmuster.so $(RELEASE)/libmuster.so.1
	ln -sf muster $(RELEASE)/msrun

$(VENV)/installed: scripts/requirements.txt
	python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -r scripts/requirements.txt
	touch $@

examples: library $(VENV)/installed
	$(CMAKE) -S examples -B $(TARGET)/cmake/examples $(STRICT)
	$(CMAKE) --build $(TARGET)/cmake/examples --parallel $(JOBS)

ctests: library $(VENV)/installed
	$(CMAKE) -S ctests -B $(TARGET)/cmake/ctests $(STRICT)
	$(CMAKE) --build $(TARGET)/cmake/ctests --parallel $(JOBS)

## Demo

DEMO := $(TARGET)/demo
MUSTER_RUN := $(RELEASE)/muster run --worker_num 4 --local_worker_num 4 --master_port 0 --join True \
    --cluster_time_out 60

demo: build
	@echo "--- training on 4 workers"
	$(MUSTER_RUN) --log_dir $(DEMO)/train_digits --tail_worker_log 0,1,2,3 $(TARGET)/examples/train_digits
	@echo "--- all-gather of the rank, from C"
	$(MUSTER_RUN) --log_dir $(DEMO)/allgather_c --tail_worker_log 0 $(TARGET)/examples/allgather
	@echo "--- all-gather of the rank, from Python"
	$(MUSTER_RUN) --log_dir $(DEMO)/allgather_python --tail_worker_log 0 $(CURDIR)/examples/allgather/allgather.py
	@echo "--- done; the logs are in target/demo"

## Test

test: fmt clippy rust-tests loom build ctest pytest

fmt:
	cargo fmt --check

clippy:
	cargo clippy --all-targets -- -D warnings

rust-tests:
	cargo test

# Its own folder, for with another cfg everything is built anew.
loom:
	CARGO_TARGET_DIR=$(TARGET)/loom RUSTFLAGS="--cfg loom" cargo test --profile loom --lib loom_test

ctest: ctests
	$(CTEST) --test-dir $(TARGET)/cmake/ctests --output-on-failure --no-tests=error

pytest: $(VENV)/installed
	$(PYTHON) -m pytest tests/python

soak: build
	MUSTER_SOAK=1 cargo test --release -- --nocapture
	$(PYTHON) -m pytest -c tests/python/pytest.ini tests/soak

## Performance

bench-peers: build
	python3 scripts/bench_peers.py $(BENCH_OPTIONS)

## Housekeeping

header:
	MUSTER_BLESS=1 cargo test --test header

clean:
	rm -rf $(TARGET)
