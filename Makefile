# Thin over the CMake presets: everything can also be run by hand, see CONTRIBUTING.md.
PRESET ?= release
JOBS ?= $(shell nproc)

all: build

deps:
	@sh cmake/deps.sh

build: deps
	@mkdir -p build
	@cmake --preset $(PRESET) >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@cmake --build --preset $(PRESET) -j $(JOBS)

# TORCH=1: also an unmodified PyTorch training, in a venv under build/.
demo: build
	@sh tests/demo/demo.sh build/$(PRESET) $(if $(TORCH),torch)

test: build
	@ctest --preset $(PRESET) -j $(JOBS)

test-long: build
	@ctest --test-dir build/$(PRESET) --output-on-failure -j $(JOBS)

# The figures of docs/performance.md on this machine.
bench: build
	@sh tests/bench/bench.sh build/$(PRESET) $(EVENTS)

install: build
	@cmake --install build/$(PRESET)

clean:
	rm -rf build

.PHONY: all deps build demo test test-long bench install clean
