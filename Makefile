# One word per habit. `make test` on a bare Debian 12 machine does everything from the packages on.
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
SOURCES = $(shell git ls-files '*.h' '*.cc' '*.cu' '*.cuh')
# Packages carry the commit's time, not the clock's: two builds of one commit are the same.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2> /dev/null)

.PHONY: all deps test-deps dev-deps configure program build cuda cuda-test demo test test-avx2 python-test wheel cuda-wheel parquet asan tsan fuzz bench \
        format format-check layers lint install package cuda-package bare clean help

all: build

help: ## list these words
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

deps: ## install the Debian packages that building the program needs (tools/packages.txt)
	@tools/install_packages tools/packages.txt

test-deps: ## and those that the tests need (tools/packages-test.txt)
	@tools/install_packages tools/packages.txt tools/packages-test.txt

dev-deps: ## and those of people who work on turbogr (tools/packages-dev.txt)
	@tools/install_packages tools/packages.txt tools/packages-test.txt tools/packages-dev.txt

# $(call configure,PRESET): quiet unless it fails. Those who work on turbogr (TGR_WERROR) compile source by source, unless
# TGR_UNITY says otherwise, but for the sanitizers, whose builds are three times as slow: they take batches, as users do.
batches = $(or $(TGR_UNITY),$(if $(TGR_WERROR),OFF,ON))
configure = cmake --preset $(1) -DTGR_UNITY=$(if $(filter %san,$(1)),ON,$(batches)) > build-configure.log 2>&1 || { cat build-configure.log; exit 1; }; rm -f build-configure.log

configure: deps
	@$(call configure,cpu)

program: configure ## build the program at build/turbogr, without the tests
	@cmake --build --preset cpu -j $(JOBS) --target turbogr

build: test-deps ## build everything: the programs and the tests
	@$(call configure,cpu)
	@cmake --build --preset cpu -j $(JOBS)

test: build ## run every test
	@ctest --preset cpu -j $(JOBS)

test-avx2: build ## run every test as a machine without AVX-512 would
	@TGR_SIMD=avx2 ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=AVX2 ctest --preset cpu -j $(JOBS)

python-test: build dev-deps ## run the tests that need Python, the package's own included, in an environment of their own
	@tools/python_test build

wheel: dev-deps ## Python wheels in build/wheels, each tried in a bare environment (tools/wheel)
	@tools/wheel

cuda-wheel: dev-deps ## the same with CUDA, in build/wheels-cuda; NVIDIA's libraries are found where they are installed
	@tools/wheel --cuda

parquet: configure ## let build/turbogr read and write Parquet, by the Arrow library of the pyarrow that PYTHON (python3) has
	@cmake --preset cpu -DTGR_PYARROW=$$($(or $(PYTHON),python3) -c 'import os, pyarrow; print(os.path.dirname(pyarrow.__file__))') > /dev/null
	@cmake --build --preset cpu -j $(JOBS) --target turbogr turbogr_parquet

demo: program ## make a small world in demo/ (anew each time), train on it, evaluate, recommend, report
	@build/turbogr demo demo --overwrite

cuda: deps ## build for NVIDIA GPUs (nvcc 13): build-cuda/turbogr and libturbogr_c.so
	@$(call configure,cuda)
	@cmake --build --preset cuda -j $(JOBS) --target turbogr turbogr_c

cuda-test: test-deps ## build and run the GPU tests; without a GPU they skip, by name
	@$(call configure,cuda)
	@cmake --build --preset cuda -j $(JOBS) --target turbogr turbogr-bench turbogr_c tests_cuda
	@ctest --test-dir build-cuda -j $(JOBS) -L cuda --output-on-failure

SANITIZED = tests_unit tests_gradcheck tests_property
asan: test-deps ## run the unit, gradient and property tests under address and undefined-behaviour sanitizers
	@$(call configure,asan)
	@cmake --build --preset asan -j $(JOBS) --target $(SANITIZED)
	@ctest --preset asan -j $(JOBS) -L 'unit|gradcheck|property'

tsan: test-deps ## run the tests of threads and ranks under the thread sanitizer
	@$(call configure,tsan)
	@cmake --build --preset tsan -j $(JOBS) --target tests_threads
	@ctest --preset tsan -j $(JOBS) -L threads

fuzz: dev-deps ## feed each reader made-up bytes for FUZZ_TIME (10s), under the same two sanitizers
	@tools/fuzz all $(or $(FUZZ_TIME),10s)

bench: configure ## measure every operator against its padded baseline
	@cmake --build --preset cpu -j $(JOBS) --target turbogr turbogr-bench
	@build/turbogr bench ops

format: dev-deps ## rewrite the sources in the house format
	@clang-format -i $(SOURCES)

format-check: dev-deps
	@clang-format --dry-run -Werror $(SOURCES)

layers: ## fail on an include that points upwards
	@tools/check_layers

lint: dev-deps ## clang-tidy over every source
	@tools/lint

install: configure ## install program, C library, manual and completion under PREFIX (default /usr/local)
	@cmake --build --preset cpu -j $(JOBS) --target distribution
	@cmake --install build --prefix $(PREFIX)

package: test-deps ## a .deb and a relocatable .tar.gz in build/packages
	@$(call configure,cpu)
	@cmake --build --preset cpu -j $(JOBS) --target distribution
	@rm -rf build/packages
	@cpack --config build/CPackConfig.cmake > build/cpack.log 2>&1 || (cat build/cpack.log; exit 1)
	@ls -l build/packages

cuda-package: test-deps ## the same of the CUDA build, in build-cuda/packages
	@$(call configure,cuda)
	@cmake --build --preset cuda -j $(JOBS) --target distribution
	@rm -rf build-cuda/packages
	@cpack --config build-cuda/CPackConfig.cmake > build-cuda/cpack.log 2>&1 || (cat build-cuda/cpack.log; exit 1)
	@ls -l build-cuda/packages

bare: dev-deps ## prove `make demo` and the packages on a bare Debian 12 root (needs root)
	@tools/bare_machine demo package

clean: ## remove every build folder
	@rm -rf build build-asan build-tsan build-cuda build-fuzz build-lint build-wheel-*
