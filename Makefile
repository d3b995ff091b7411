# Every step that a person or CI runs. `make help` lists them.
#
# Needs on the machine: a Rust toolchain (cargo, with rustfmt and clippy for `make lint`), a C linker and
# CPython >= 3.11. Everything else is installed by these targets into .venv* and ~/.cache/ringloop.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
# Images of containers set it; then every worker compiles every test, and rewrites its assertions.
unexport PYTHONDONTWRITEBYTECODE

TARGET := $(or $(CARGO_TARGET_DIR),target)
VENV := .venv
BIN := $(VENV)/bin
HOST ?= 127.0.0.1
PORT ?= 8000
# What the tests move in each direction through the service, in bytes, on the default interpreter and on the others.
BYTES ?= 1073741824
BYTES_OTHERS ?= 67108864
# What `make cpython` builds; a t at the end is a free-threaded one.
CPYTHONS ?= 3.14 3.14t
# In how many threads at once, each with loops of its own, a free-threaded CPython runs each test: as many as there are processors,
# 2 to 4. SAMPLE=1: on each of the others the part of the tests that tests/support/sample.py has for it, in half the time; CI does so.
SAMPLE ?=
THREADS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 2 ? 2 : n > 4 ? 4 : n)))
# How many of the other interpreters are tested at a time, and by how many processes each (the default one: 6).
JOBS ?= 2
WORKERS ?=
# Extra arguments: make test-python PYTEST="-k timers -x", make test-rust CARGO_TEST="op::recv"
PYTEST ?=
CARGO_TEST ?=
NIGHTLY ?= nightly
CARGO_DENY_VERSION := 0.20.2
# Optimised, without link-time optimisation, with assertions: what the tests run.
TESTED := --profile tested

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# --- set-up -----------------------------------------------------------------------------------------------

.PHONY: check-tools
check-tools:
	@tools/check-tools

# One environment an interpreter: .venv is the default python3, .venv-3.12 and so on are the others.
.PHONY: venv
venv: check-tools ## .venv with everything that tests and lint need
	@tools/make-venv $(VENV) "$$(tools/pythons --default)"

.PHONY: develop
develop: venv ## build for release and install into .venv
	@tools/develop $(VENV) --release

.PHONY: cpython
cpython: ## build CPython 3.14 and 3.14t where no package of them exists; `make test` then finds them; CPYTHONS="3.15"
	@for version in $(CPYTHONS); do \
		free_threaded=; case $$version in *t) free_threaded=--disable-gil ;; esac; \
		tools/build-cpython "$${RINGLOOP_PYTHON_DIR:-$$HOME/.cache/ringloop/python}/$$version" \
			--version $${version%t} $$free_threaded; \
	done

# --- the main job -----------------------------------------------------------------------------------------

# The check runs what the tests run, which are there or soon will be: link-time optimisation takes minutes.
.PHONY: run
run: venv ## serve examples/service.py on ringloop; CHECK=1 drives it and exits; HOST=, PORT=, RINGLOOP_DRIVER=
ifdef CHECK
	@tools/develop $(VENV) $(TESTED)
	@$(BIN)/python -m examples.check_service
else
	@tools/develop $(VENV) --release
	@echo "serving examples/service.py on http://$(HOST):$(PORT)/ (Ctrl-C stops it)"
	@trap : INT; $(BIN)/uvicorn examples.service:app --loop ringloop:new_event_loop \
		--host $(HOST) --port $(PORT) --timeout-graceful-shutdown 5 || [ $$? -eq 130 ]
endif

# --- tests ------------------------------------------------------------------------------------------------

.PHONY: test
test: test-rust test-python ## Rust and Python tests, on both drivers, on the default CPython

# One after the other; the last two install packages and other implementations of QUIC.
.PHONY: test-all
test-all: test test-others test-ring loom ## the same on every CPython found, and loom, asan, interop, qpack, http3, interop-http3, browser, smoke, use-with, ecosystem (QUICK=1), quic-shims, fs-shims
	@if cargo +$(NIGHTLY) --version >/dev/null 2>&1; then $(MAKE) asan; else echo "asan was NOT run: it needs a nightly toolchain"; fi
	@$(MAKE) interop qpack http3 interop-http3 browser smoke use-with quic-shims fs-shims
	@$(MAKE) ecosystem QUICK=1

.PHONY: test-rust
test-rust: check-tools ## the engine on both drivers
	@echo "== building the Rust tests: minutes, the first time"
	@set -- --quiet --workspace --exclude ringloop-python --exclude ringloop-pyo3 --exclude ringloop-echo-example --exclude ringloop-probe --features ringloop/futures-core $(CARGO_TEST); \
		cargo test --no-run "$$@"; \
		tools/both-drivers "cargo test" tools/test-rust cargo test "$$@"
	@tools/both-drivers "features" tools/test-rust cargo test --quiet -p ringloop --features bytes,task-dump,tracing --lib --test dump --test spans $(CARGO_TEST)

.PHONY: test-ring
test-ring: check-tools ## QUIC with cryptography by ring
	@echo "== QUIC on ring"
	@tools/test-rust cargo test --quiet -p ringloop-quic --no-default-features --features ring --test connections $(CARGO_TEST)

TEST_PYTHON = BYTES=$(BYTES) BYTES_OTHERS=$(BYTES_OTHERS) THREADS=$(THREADS) SAMPLE=$(SAMPLE) WORKERS=$(1) \
	xargs --max-procs=$(JOBS) -I{} sh -c 'tools/test-python $$1 $(PYTEST)' test-python {}

.PHONY: test-python
test-python: check-tools ## the package on both drivers, on the default CPython; PYTHON=python3.13 on another
	@$(call TEST_PYTHON,$(or $(WORKERS),6)) < <(tools/test-python --default)

.PHONY: test-others
test-others: check-tools ## the package on every other CPython found, JOBS= at a time; PYTHONS="PATH ..." instead of a search
	@rm -f $(TARGET)/pytest-*.log
	@$(call TEST_PYTHON,$(or $(WORKERS),3)) < <(tools/test-python --others) || { tools/failed-tests $(TARGET); exit 1; }

# SUITES="uvicorn anyio" instead of all, QUICK=1 for a part of each, WRITE=1 to update tests/ecosystem/RESULTS.md,
# ARGS="--help" for the rest.
.PHONY: ecosystem
ecosystem: venv ## the test suites of uvicorn, anyio and others, on stock asyncio and on both drivers
	@tools/develop $(VENV) $(TESTED)
	@$(BIN)/python -m tests.ecosystem run $(SUITES) $(if $(QUICK),--quick) $(if $(WRITE),--write) $(ARGS)

.PHONY: smoke
smoke: check-tools ## asyncpg, psycopg, redis, grpc, tornado, dask and others at work, on stock asyncio and both drivers
	@set -- $$(tools/pythons | grep '^3\.14 ' || tools/pythons | head -n 1); \
		tools/make-venv .venv-$$1 $$2; \
		tools/develop .venv-$$1 $(TESTED); \
		tools/smoke $$2 $(PYTEST)

.PHONY: use-with
use-with: check-tools ## the commands and programs of docs/use-with.md: uvicorn, gunicorn, hypercorn, granian and others as they are
	@set -- $$(tools/pythons | grep '^3\.14 ' || tools/pythons | head -n 1); \
		tools/make-venv .venv-$$1 $$2; \
		tools/develop .venv-$$1 $(TESTED); \
		tools/use-with $$2 $(PYTEST)

# PEERS="quic-go ngtcp2" instead of all, WRITE=1 to update docs/interop.md. What does not install here is skipped.
.PHONY: interop
interop: venv ## our QUIC with aioquic, qh3, aiopquic, quic-go and ngtcp2, both ways
	@tools/develop $(VENV) $(TESTED)
	@$(BIN)/python -m tests.interop $(if $(PEERS),--peers "$(PEERS)") $(if $(WRITE),--write) $(ARGS)

# AIOPQUIC_SOURCES: the sources of aiopquic 0.6.1, whose own tests run then, too.
.PHONY: quic-shims
quic-shims: check-tools ## dnspython, hypercorn, urllib3-future on ringloop.quic, by an import shim; programs on aioquic and on ours
	@set -- $$(tools/pythons | grep '^3\.14 ' || tools/pythons | head -n 1); \
		tools/make-venv .venv-$$1 $$2; \
		tools/develop .venv-$$1 $(TESTED); \
		tools/make-venv .venv-quic-shims $$2 tests/ecosystem/quic/requirements.txt; \
		PYTHONPATH=$$PWD/python .venv-quic-shims/bin/python -m pytest -q --noconftest -p no:cacheprovider \
			-p no:asyncio -o addopts= tests/ecosystem/quic $(PYTEST); \
		RINGLOOP_TEST_AIOQUIC=1 PYTHONPATH=$$PWD/python .venv-quic-shims/bin/python -m pytest -q \
			-p no:cacheprovider -p no:asyncio tests/quic/test_scenarios.py \
			tests/quic/test_scenarios_protocols.py tests/quic/test_material.py

.PHONY: fs-shims
fs-shims: check-tools ## aiofiles' own tests on ringloop.fs, by an import shim, on asyncio and both drivers
	@set -- $$(tools/pythons | grep '^3\.14 ' || tools/pythons | head -n 1); \
		tools/make-venv .venv-$$1 $$2; \
		tools/develop .venv-$$1 $(TESTED); \
		tools/make-venv .venv-fs-shims $$2 tests/ecosystem/files/requirements.txt; \
		PYTHONPATH=$$PWD/python:$$PWD .venv-fs-shims/bin/python -m pytest -q --noconftest -c /dev/null \
			-p no:cacheprovider -p no:asyncio tests/ecosystem/files $(PYTEST)

# ARGS="--runs 100" for longer.
.PHONY: qpack
qpack: check-tools ## our QPACK with ls-qpack, both ways
	@cargo build --quiet --package ringloop-h3 --example qpack_lines
	@tools/make-venv .venv-qpack "$$(tools/pythons --default)" tests/interop/qpack-requirements.txt
	@.venv-qpack/bin/python -m tests.interop.qpack $(TARGET)/debug/examples/qpack_lines $(ARGS)

# REQUESTS and SESSIONS: how many.
.PHONY: http3-state
http3-state: venv ## 100,000 requests and 10,000 sessions leave the state of both ends as it was, on both drivers; 7 minutes
	@tools/develop $(VENV) $(TESTED)
	@RINGLOOP_STATE_REQUESTS=$(or $(REQUESTS),100000) RINGLOOP_STATE_SESSIONS=$(or $(SESSIONS),10000) \
		RINGLOOP_TEST_LOOPS="ringloop-uring ringloop-epoll" \
		$(VENV)/bin/python -m pytest -q -n 0 --durations=4 tests/memory/test_http3.py

.PHONY: http3-figures
http3-figures: venv ## memory of a server for each connection, request and session, on both drivers
	@tools/develop $(VENV) $(TESTED)
	@$(VENV)/bin/python -m tests.memory.http3_figures

# ARGS="--runs 100" for longer.
.PHONY: http3
http3: check-tools ## our HTTP/3 with aioquic's, both ways
	@cargo build --quiet --package ringloop-h3 --example h3_lines
	@tools/make-venv .venv-qpack "$$(tools/pythons --default)" tests/interop/qpack-requirements.txt
	@.venv-qpack/bin/python -m tests.interop.h3 $(TARGET)/debug/examples/h3_lines $(ARGS)

# PEERS="curl nginx" instead of all, WRITE=1 to update docs/interop.md. What does not install here is skipped.
.PHONY: interop-http3
interop-http3: venv ## our HTTP/3 and WebTransport with aioquic, quic-go, quiche, curl, nginx, web-transport-quinn and others
	@tools/develop $(VENV) $(TESTED)
	@$(BIN)/python -m tests.interop.http3 $(if $(PEERS),--peers "$(PEERS)") $(if $(WRITE),--write) $(ARGS)

# RINGLOOP_CHROMIUM: a program that is there; else Debian's package is unpacked into the cache folder, once.
.PHONY: browser
browser: venv ## ringloop.h3 and ringloop.webtransport with headless Chromium
	@tools/develop $(VENV) $(TESTED)
	@$(BIN)/python -m pytest --quiet -o addopts="-ra --strict-markers" tests/browser $(PYTEST)

# KINDS, DRIVERS, RUNS, SEED: a seed that failed is played again alone by RUNS=1 SEED=it.
.PHONY: injection
injection: venv ## KeyboardInterrupt and cancellation at random points, 10,000 runs of each on both drivers; RUNS=100 for less
	@tools/develop $(VENV) $(TESTED)
	@for driver in $(or $(DRIVERS),io_uring epoll); do for kind in $(or $(KINDS),keyboard cancel); do \
		$(BIN)/python -m tests.injection $$kind $$driver --runs $(or $(RUNS),10000) --seed $(or $(SEED),0) --jobs 2; \
	done; done

# SHARE: of one processor, for all processes together. WRITE=1 writes docs/reliability.md and its picture.
.PHONY: soak
soak: check-tools ## mixed load with faults on both drivers, every byte compared, memory sampled; MINUTES=10, SHARE=1
	@set -- $$(tools/pythons | grep '^3\.14 ' || tools/pythons | head -n 1); \
		tools/make-venv .venv-$$1 $$2; \
		tools/develop .venv-$$1 $(TESTED); \
		.venv-$$1/bin/python -m tests.soak --minutes $(or $(MINUTES),10) --share $(or $(SHARE),1) $(ARGS); \
		$(if $(WRITE),.venv-$$1/bin/python -m tests.soak.report target/soak/soak.json docs/reliability.md; \
		tools/make-venv .venv-soak-plot $$2 tests/soak/requirements.txt; \
		.venv-soak-plot/bin/python tests/soak/plot.py target/soak/soak.json docs/reliability.svg)

# KERNELS="6.1" instead of 5.10, 6.1, 6.12 and sid's; JOBS= kernels at a time; WRITE=1 updates docs/platforms.md. ENGINE=0 leaves
# the engine's tests out, SERVICE="tcp udp" runs a part of the service check; QUICK=1 is one kernel and half a minute;
# IF_POSSIBLE=1 succeeds where no kernel can be emulated, and says so; ARGS="--help" for the rest.
.PHONY: kernels
kernels: venv ## a service and the engine's tests on Debian's kernels, emulated by qemu; KERNELS="6.1", ENGINE=0, QUICK=1, WRITE=1
	@tools/develop $(VENV) $(TESTED)
	@$(BIN)/python tools/kernels --jobs $(JOBS) $(if $(KERNELS),--kernels "$(KERNELS)") $(if $(SERVICE),--checks "$(SERVICE)") \
		$(if $(filter 0,$(ENGINE)),--no-engine) $(if $(QUICK),--quick) $(if $(IF_POSSIBLE),--if-possible) \
		$(if $(WRITE),--write) $(ARGS)

# QUICK=1 is a part, and hardly optimises the wheel; CHECK=1 is two test programs, half a minute; TESTS="name" as cargo test takes
# them; WHEEL=1 builds the wheel for the emulated CPython and tries it; IF_POSSIBLE=1 succeeds where nothing can be emulated,
# and says so.
# RINGLOOP_QEMU: a qemu-aarch64 that is there; else Debian's is unpacked into the cache folder, as is its CPython for arm64.
.PHONY: aarch64
aarch64: check-tools ## the engine's and the coroutines' tests for aarch64, built by zig, emulated by qemu; CHECK=1, QUICK=1, WHEEL=1
	@tools/make-venv .venv-wheels "$$(tools/pythons --default)" tools/wheels/requirements.txt
	@$(if $(WHEEL),.venv-wheels/bin/python tools/wheels --targets aarch64 --versions 3.13 --out $(TARGET)/wheels/aarch64 $(if $(QUICK),--quick))
	@.venv-wheels/bin/python -m tests.aarch64 $(if $(CHECK),--check) $(if $(QUICK),--quick) $(if $(IF_POSSIBLE),--if-possible) \
		$(if $(WHEEL),--wheel $(TARGET)/wheels/aarch64) $(TESTS)

# TARGETS="aarch64-apple-darwin" and VERSIONS="3.13 3.14t" for others than both and 3.14. Nothing is compiled to code or linked.
.PHONY: macos
macos: check-tools ## type-check the crates and the extension for macOS, by clippy; LINK=1 links an example by zig
	@tools/check-tools clippy
	@$(if $(LINK),tools/make-venv .venv-wheels "$$(tools/pythons --default)" tools/wheels/requirements.txt)
	@tools/macos

.PHONY: freebsd
freebsd: check-tools ## type-check the engine for FreeBSD, by clippy; nothing is linked or run
	@tools/check-tools clippy
	@tools/freebsd

# LIBKQUEUE= is a folder or a git repository with libkqueue's sources; else they are cloned from GitHub. TESTS="name" as cargo test takes them.
.PHONY: kqueue
kqueue: check-tools ## the tests of kqueue's backend, on Linux by libkqueue, which is built with cmake
	@tools/kqueue $(TESTS)

# PROGRAMS="net coro/tcp" for some of the test programs alone, CHECK=1 for the types alone; TESTS="name" as cargo test takes them.
.PHONY: windows
windows: check-tools ## the engine, the coroutines and the package for Windows: clippy, and their tests built by mingw and run by Wine
	@tools/check-tools clippy
	@tools/windows $(TESTS)

# MODULES="test_events test_streams" instead of all, which take a quarter of an hour.
.PHONY: windows-cpython
windows-cpython: venv ## CPython's own tests of asyncio for Windows, by Wine: on asyncio's proactor loop, then on ours
	@CARGO_TARGET_DIR="$(abspath $(TARGET))/windows" CPYTHON=1 MODULES="$(MODULES)" PYTHON="$$PWD/$(BIN)/python" tools/windows-package

.PHONY: loom
loom: check-tools ## model-check the atomics (inbox, task state, idle workers, returned buffers)
	@echo "== loom"
	@RUSTFLAGS="--cfg loom" cargo test --quiet -p ringloop -p ringloop-coro $(TESTED) --lib \
		--target-dir $(TARGET)/loom loom

.PHONY: asan
asan: check-tools ## the tests of the engine and the coroutines under AddressSanitizer (needs a nightly toolchain)
	@cargo +$(NIGHTLY) --version >/dev/null 2>&1 || { echo "make asan: no nightly toolchain; run: rustup toolchain install nightly" >&2; exit 1; }
	@export RUSTFLAGS="-Zsanitizer=address"; \
	export ASAN_OPTIONS="$${ASAN_OPTIONS:+$$ASAN_OPTIONS:}allocator_may_return_null=1"; \
	place="--target $$(rustc -vV | sed -n 's/^host: //p') --target-dir $(TARGET)/asan"; \
	cargo +$(NIGHTLY) build --quiet -p ringloop --examples $$place; \
	cargo +$(NIGHTLY) build --quiet -p ringloop-coro --features sanitizer --examples $$place; \
	for package in "ringloop" "ringloop-coro --features sanitizer"; do \
		set -- --quiet -p $$package --lib --tests $$place $(CARGO_TEST); \
		cargo +$(NIGHTLY) test --no-run "$$@"; \
		tools/both-drivers "$${package%% *} under AddressSanitizer" tools/test-rust cargo +$(NIGHTLY) test "$$@"; \
	done

# On epoll: memcheck does not see what a ring's kernel writes, and valgrind lets no other thread run while one waits in
# a ring. One test at a time; the others of the engine's suite have deadlines that its speed does not meet. Of the
# coroutines' tests those are left out that start processes (valgrind knows no pidfd), and those whose stacks are
# left behind on purpose.
CORO_MEMCHECKED := basics borrowed cancel channel files locals scope select shutdown sync tcp workers
CORO_UNCHECKED := signal_wakes_its_waiter endless_destructor_wait_does_not_block_shutdown \
	thread_with_abandoned_unwinding_is_refused endless_destructor_is_abandoned
.PHONY: valgrind
valgrind: check-tools ## the memory of tasks and coroutines under valgrind's memcheck (needs valgrind)
	@command -v valgrind >/dev/null || { echo "make valgrind: no valgrind on the path" >&2; exit 1; }
	@export RINGLOOP_DRIVER=epoll; \
	export CARGO_TARGET_$$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')_RUNNER="valgrind --quiet --error-exitcode=9 --fair-sched=yes --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite"; \
	cargo test --quiet -p ringloop --test tasks -- --test-threads=1; \
	cargo test --quiet -p ringloop-coro $(CORO_MEMCHECKED:%=--test %) -- --test-threads=1 $(CORO_UNCHECKED:%=--skip %)

.PHONY: quic-bulk
quic-bulk: venv ## a gigabyte each way by QUIC through a hundredth of loss, verified, in Rust and Python; BYTES=67108864 for less
	@BYTES=$(BYTES) cargo test --quiet $(TESTED) -p ringloop-quic --test bulk -- --ignored --nocapture
	@tools/develop $(VENV) $(TESTED)
	@RINGLOOP_QUIC_BYTES=$(BYTES) $(BIN)/python -m pytest --quiet --capture=no tests/quic/test_bulk.py $(PYTEST)

# What `make fuzz` runs, and for how long each; what it finds new stays in $(TARGET)/fuzz.
FUZZ ?= datagrams mutations frames parameters rewriting connection qpack capsules webtransport
FUZZ_SECONDS ?= 3600

.PHONY: fuzz
fuzz: check-tools ## QUIC and HTTP/3 against arbitrary peers, an hour a target (needs a nightly toolchain and cargo-fuzz); FUZZ="frames", FUZZ_SECONDS=60
	@cargo +$(NIGHTLY) fuzz --version >/dev/null 2>&1 || { echo "make fuzz: run: rustup toolchain install nightly; cargo install --locked cargo-fuzz" >&2; exit 1; }
	@for name in $(FUZZ); do \
		echo "== fuzzing $$name for $(FUZZ_SECONDS) s"; \
		dir=$$(echo crates/*/fuzz/corpus/$$name); dir=$${dir%/corpus/*}; \
		mkdir -p $(TARGET)/fuzz/corpus/$$name; \
		CARGO_TARGET_DIR=$(TARGET)/fuzz cargo +$(NIGHTLY) fuzz run --fuzz-dir $$dir $$name \
			$(TARGET)/fuzz/corpus/$$name $$dir/corpus/$$name -- \
			-max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1; \
	done

# --- benchmarks -------------------------------------------------------------------------------------------

.PHONY: bench
bench: check-tools ## compare with other loops; ARGS="--help" shows the choices
	@"$$(tools/pythons --default)" benches/compare.py $(ARGS)

# What benches/hot/recorded.json has for this CPython and architecture; ARGS="--drivers epoll uring" counts on the ring, too.
.PHONY: hot-paths
hot-paths: check-tools ## instructions of the loop's hot paths, by valgrind: fails beyond 3 % of what is recorded; WRITE=1 records
	@set -- $$(tools/pythons | grep '^3\.14 ' || tools/pythons | head -n 1); \
		tools/make-venv .venv-$$1 $$2; \
		tools/develop .venv-$$1 $(TESTED); \
		tools/hot-paths .venv-$$1/bin/python $(if $(WRITE),--write) $(ARGS)

.PHONY: bench-rust
bench-rust: check-tools ## compare the engine with other Rust runtimes; ARGS="--help" shows the choices
	@"$$(tools/pythons --default)" benches/rust/compare.py $(ARGS)

.PHONY: bench-coro
bench-coro: check-tools ## compare the coroutines with may, tokio and threads; ARGS="--help" shows the choices
	@"$$(tools/pythons --default)" benches/coro/compare.py $(ARGS)

# On CPython 3.14 where it is there: aiopquic does not install on 3.11.
.PHONY: bench-quic
bench-quic: check-tools ## compare our QUIC with aioquic, qh3 and aiopquic; ARGS="--help" shows the choices
	@set -- $$(tools/pythons | grep '^3\.14 ' || tools/pythons | head -n 1); \
		"$$2" benches/quic/compare.py $(ARGS)

.PHONY: bench-http3
bench-http3: check-tools ## compare our HTTP/3 and WebTransport with other servers, by a client in Go; ARGS="--help" shows the choices
	@set -- $$(tools/pythons | grep '^3\.14 ' || tools/pythons | head -n 1); \
		"$$2" benches/http3/compare.py $(ARGS)

# On CPython 3.14 where it is there: blazio needs it.
.PHONY: bench-fs
bench-fs: check-tools ## compare asynchronous files with aiofiles, aiofile, ayafileio and blazio; ARGS="--help" shows the choices
	@set -- $$(tools/pythons | grep '^3\.14 ' || tools/pythons | head -n 1); \
		tools/make-venv .venv-$$1 $$2; \
		tools/develop .venv-$$1 --release; \
		tools/make-venv .venv-bench-fs $$2 benches/fs-requirements.txt; \
		.venv-bench-fs/bin/python benches/fs.py $(ARGS)

# CPython 3.14t: with the GIL two threads do the work of one.
.PHONY: bench-workers
bench-workers: check-tools ## what two workers of run_workers serve, next to one and to two processes; ARGS="--help" shows the choices
	@set -- $$(tools/pythons | grep '^3\.14t ' || true); \
		[ $$# -gt 0 ] || { echo "bench-workers: needs CPython 3.14t, which make cpython builds" >&2; exit 1; }; \
		tools/make-venv .venv-$$1 $$2; \
		tools/develop .venv-$$1 --release; \
		cargo build --quiet --release --manifest-path benches/loadgen/Cargo.toml --target-dir $(TARGET)/loadgen; \
		.venv-$$1/bin/python benches/workers.py --loadgen $(TARGET)/loadgen/release/loadgen $(ARGS)

# Serial round trips: on a busy machine the figures say nothing.
.PHONY: bench-extension
bench-extension: check-tools ## compare a Rust client on the loop's ring with pyo3-async-runtimes and tokio; ARGS="--rounds 3"
	@set -- $$(tools/pythons | grep '^3\.14 ' || tools/pythons | head -n 1); \
		tools/make-venv .venv-$$1 $$2; \
		tools/develop .venv-$$1 --release; \
		tools/extension $$2 release; \
		tools/make-venv .venv-bench-extension $$2 benches/extension/requirements.txt; \
		PYO3_NO_PYTHON=1 cargo build --quiet --release --manifest-path benches/extension/tokio/Cargo.toml --target-dir $(TARGET)/bench-extension; \
		cp $(TARGET)/bench-extension/release/libtokio_echo.so $(TARGET)/extension-release/tokio_echo.abi3.so; \
		cc -O2 -o $(TARGET)/bench-extension/epoll_echo benches/floor/epoll_echo.c; \
		.venv-bench-extension/bin/python benches/extension/compare.py --folders $(TARGET)/extension-release \
			--server $(TARGET)/bench-extension/epoll_echo $(ARGS)

# WHEEL: an existing wheel, for the Python that PYTHON names; by default one is built as the tests build it.
.PHONY: first-hour
first-hour: check-tools ## a new user's way in an empty environment: install, FastAPI, doctor, bench, profile; WRITE=1 for docs/first-hour.md
	@set -- $$(tools/pythons | grep '^3\.14 ' || tools/pythons | head -n 1); \
		wheel="$(WHEEL)"; \
		[ -n "$$wheel" ] || { \
			tools/make-venv .venv-$$1 $$2; \
			rm -rf $(TARGET)/first-hour; \
			.venv-$$1/bin/maturin build --quiet $(TESTED) --out $(TARGET)/first-hour --interpreter $$2; \
			wheel=$$(echo $(TARGET)/first-hour/*.whl); \
		}; \
		$(or $(PYTHON),$$2) tools/first-hour "$$wheel" $(if $(WRITE),--write)

# --- lint -------------------------------------------------------------------------------------------------

# Beside what `make cpython` builds: another checkout finds it there.
TOOLS := $(or $(RINGLOOP_TOOLS_DIR),$(HOME)/.cache/ringloop/tools)
DENY := $(TOOLS)/bin/cargo-deny-$(CARGO_DENY_VERSION)
# An unoptimised build: it runs for a second, and compiling it is most of the cost.
$(DENY):
	@echo "installing cargo-deny $(CARGO_DENY_VERSION) into $(TOOLS) (one to three minutes, once)"
	@cargo install --quiet --locked --debug --root $(TOOLS) --target-dir $(TARGET)/tools \
		cargo-deny --version $(CARGO_DENY_VERSION)
	@mv $(TOOLS)/bin/cargo-deny $@; rm -rf $(TARGET)/tools

.PHONY: lint
lint: lint-docs lint-rust lint-python ## links and words of the docs, formatting, clippy, layers, dependencies, ruff, mypy

.PHONY: lint-docs
lint-docs:
	tools/check-links
	tools/check-words

.PHONY: lint-rust
lint-rust: check-tools $(DENY) doc
	@tools/check-tools rustfmt clippy
	tools/check-layers
	cargo fmt --all --check
	cargo clippy --quiet --workspace --all-targets -- --deny warnings
	$(DENY) --log-level error check bans licenses sources

# SERVE=1 serves it at localhost:8000 instead, and builds it again after each change of a page's copy.
.PHONY: docs
docs: check-tools ## the documentation as a site, into target/site/html, with a reference of every public name
	@tools/make-venv .venv-docs "$$(tools/pythons --default)" tools/site-requirements.txt
	@tools/site target/site/pages
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs $(if $(SERVE),serve,build --quiet --strict)
	@$(if $(SERVE),,tools/site --check target/site/html/objects.inv && echo "open target/site/html/index.html")

# A missing word on a public item, a link that leads nowhere: errors.
.PHONY: doc
doc: check-tools ## the crates' reference, into $(TARGET)/doc
	RUSTDOCFLAGS="--deny warnings" cargo doc --quiet --package ringloop --package ringloop-macros --package ringloop-coro --package ringloop-quic --package ringloop-h3 --package ringloop-abi --no-deps --all-features
	RUSTDOCFLAGS="--deny warnings" cargo doc --quiet --package ringloop-pyo3 --no-deps

.PHONY: lint-python
lint-python: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: format
format: venv ## rewrite Rust and Python in the project's format
	cargo fmt --all
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix-only --quiet .

# --- the crate ---------------------------------------------------------------------------------------------

MSRV := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
# What the public interface is compared with: a released version's tag or commit.
BASELINE ?= HEAD~1

.PHONY: msrv
msrv: check-tools ## the engine, the coroutines and the examples on the oldest Rust that is promised (needs that toolchain)
	@cargo +$(MSRV) --version >/dev/null 2>&1 || { echo "make msrv: no toolchain; run: rustup toolchain install $(MSRV) --profile minimal" >&2; exit 1; }
	cargo +$(MSRV) check --quiet --package ringloop --package ringloop-macros --package ringloop-coro --package ringloop-quic --package ringloop-h3 --package ringloop-pyo3 --target-dir $(TARGET)/msrv
	cargo +$(MSRV) check --quiet --package ringloop --package ringloop-web-examples --all-features --target-dir $(TARGET)/msrv

.PHONY: package
package: check-tools ## what would be published, built from its archive
	cargo publish --dry-run --quiet --package ringloop --package ringloop-macros --package ringloop-coro --package ringloop-quic --package ringloop-h3 --package ringloop-abi --package ringloop-pyo3 $(ARGS)

.PHONY: semver
semver: check-tools ## compare the engine's public interface with BASELINE= (a tag or commit)
	@command -v cargo-semver-checks >/dev/null || { echo "make semver: run: cargo install --locked cargo-semver-checks" >&2; exit 1; }
	cargo semver-checks --package ringloop --baseline-rev $(BASELINE)

# --- packages ---------------------------------------------------------------------------------------------

# VERSIONS="3.11 3.14t", TARGETS="sdist manylinux musllinux aarch64", OUT=dist; QUICK=1 is one wheel for the default CPython.
# REPOSITORY=https://…: the address of the sources, for links on an index; the remote `origin` if that is one.
.PHONY: wheels
wheels: check-tools ## the source archive and wheels for manylinux, musllinux and aarch64: built, checked, tried; VERSIONS=, TARGETS=, QUICK=1
	@tools/make-venv .venv-wheels "$$(tools/pythons --default)" tools/wheels/requirements.txt
	@.venv-wheels/bin/python tools/wheels $(if $(VERSIONS),--versions "$(VERSIONS)") $(if $(TARGETS),--targets "$(TARGETS)") \
		$(if $(OUT),--out "$(OUT)") $(if $(REPOSITORY),--repository "$(REPOSITORY)") $(if $(QUICK),--quick)
