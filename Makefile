# One word per habit. `make test` on a bare Debian 12 machine does everything from the packages on.
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
SOURCES = $(shell git ls-files '*.h' '*.cc' '*.cu' '*.cuh')

.PHONY: all deps configure program build cuda cuda-test demo test asan tsan bench format format-check layers lint install clean help

all: build

help: ## list these words
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

deps: ## install the Debian packages of tools/packages.txt that are missing
	@tools/install_packages tools/packages.txt

configure: deps
	@cmake --preset cpu > build-configure.log 2>&1 || (cat build-configure.log; exit 1)
	@rm -f build-configure.log

program: configure ## build the program at build/turbogr, without the tests
	@cmake --build --preset cpu -j $(JOBS) --target turbogr

build: configure ## build the program and the tests
	@cmake --build --preset cpu -j $(JOBS)

test: build ## run every test
	@ctest --preset cpu -j $(JOBS)

demo: program ## make a small world, train on it, evaluate, recommend, report
	@build/turbogr demo demo

cuda: deps ## build for NVIDIA GPUs (nvcc 13): build-cuda/turbogr, the GPU tests, libturbogr_c.so
	@cmake --preset cuda > build-configure.log 2>&1 || (cat build-configure.log; exit 1)
	@rm -f build-configure.log
	@cmake --build --preset cuda -j $(JOBS) --target turbogr tests_cuda turbogr_c attention_bench fuxi_bench

cuda-test: cuda ## run the GPU tests; without a GPU they skip, by name
	@ctest --test-dir build-cuda -j $(JOBS) -L cuda --output-on-failure

SANITIZED = tests_unit tests_gradcheck tests_property
asan: deps ## run the unit, gradient and property tests under address and undefined-behaviour sanitizers
	@cmake --preset asan > /dev/null
	@cmake --build --preset asan -j $(JOBS) --target $(SANITIZED)
	@ctest --preset asan -j $(JOBS) -L 'unit|gradcheck|property'

tsan: deps ## the same under the thread sanitizer
	@cmake --preset tsan > /dev/null
	@cmake --build --preset tsan -j $(JOBS) --target $(SANITIZED)
	@ctest --preset tsan -j $(JOBS) -L 'unit|gradcheck|property'

bench: configure ## measure every operator against its padded rival
	@cmake --build --preset cpu -j $(JOBS) --target turbogr turbogr-bench
	@build/turbogr bench ops

format: deps ## rewrite the sources in the house format
	@clang-format -i $(SOURCES)

format-check: deps
	@clang-format --dry-run -Werror $(SOURCES)

layers: ## fail on an include that points upwards
	@tools/check_layers

lint: build ## clang-tidy over every source
	@tools/lint build

install: program ## install the program under PREFIX (default /usr/local)
	@cmake --install build --prefix $(PREFIX)

clean: ## remove every build folder
	@rm -rf build build-asan build-tsan build-cuda
