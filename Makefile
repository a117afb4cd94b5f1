# What a user or a developer does with Diptych. `make help` lists the targets.
#
#   ARGS    arguments for the program that a target runs:  make compare ARGS="--model x.gguf --backends cpu,vulkan"
#   TIME    seconds for each target of:  make fuzz TIME=600 ARGS="gguf chat"
#   SETUP   'no' goes on without looking for, or installing, system packages:  make test SETUP=no

export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

ARGS ?=
SETUP ?= yes
TIME ?= 60

.DEFAULT_GOAL := help
.PHONY: help setup ready compare test bench lint fmt fmt-check clippy doc kernels shaders fuzz rocm

help: ## list these targets
	@echo 'usage: make TARGET [ARGS="..."] [SETUP=no]'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-11s  %s\n", $$1, $$2 }'

setup: ## install the system packages that are missing (Debian 12 and 13, Ubuntu 24.04)
	@scripts/setup.sh

ready:
ifneq ($(SETUP),no)
	@scripts/setup.sh --quiet
endif

# AMD's user space, if `make rocm` has unpacked one: the backend hip-kfd runs with it.
ROCM := $(lastword $(wildcard $(foreach v,5.2.3 5.7.1 6.4.3 7.2.4,target/rocm/$(v)/run)))

compare: ready ## run the same work on every backend and say where they part (ARGS: --help, --model FILE ...)
	cargo build --release -p diptych -p virtual-kfd-preload --lib --example compare
	$(if $(ROCM),CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=$(abspath $(ROCM))) cargo run --release --example compare -- $(ARGS)

test: ready ## run all tests (ARGS: arguments of cargo test, which then runs one program after the other)
	$(if $(ARGS),cargo test --workspace $(ARGS),scripts/test.sh)

bench: ready ## run the benchmarks (ARGS: arguments of cargo bench)
	cargo bench -p diptych-benches $(ARGS)

lint: fmt-check clippy doc ## check format, lints and documentation

fmt: ## format the sources
	cargo fmt --all

fmt-check:
	cargo fmt --all --check

clippy: ready
	cargo clippy --workspace --all-targets -- -D warnings

doc: ready ## build the documentation, in target/doc
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

fuzz: ## fuzz what reads files, TIME seconds each target (ARGS: gguf graph tokenizer chat code_object imatrix run_folder report); takes a C++ compiler
ifneq ($(SETUP),no)
	@scripts/setup.sh shaders --quiet
endif
	scripts/fuzz.sh $(TIME) $(ARGS)

rocm: ## unpack AMD's HIP user space of four generations in target/rocm, without installing it (ARGS: 5.2.3 ..., --to DIR)
	scripts/rocm-roots.sh $(ARGS)

kernels: ready ## compile the HIP kernels whose code objects are in the repository, after a change of a kernel
	cargo run -p hip-kernels --example objects

# The shader compiler is built without what it is not used for, see there.
shaders: export CMAKE_TOOLCHAIN_FILE ?= $(CURDIR)/shaders/shaderc.cmake
shaders: ## compile the shaders whose sources changed; takes a C++ compiler and some minutes the first time
ifneq ($(SETUP),no)
	@scripts/setup.sh shaders --quiet
endif
	cargo run --release -p diptych-shaders --features compile --bin shaders -- $(ARGS)
