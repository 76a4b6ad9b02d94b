# Thin over the CMake presets: everything can also be run by hand, see CONTRIBUTING.md.
PRESET ?= release
JOBS ?= $(shell nproc)

all: build

deps:
	@sh cmake/deps.sh

build: deps
	@cmake --preset $(PRESET) >/dev/null || cmake --preset $(PRESET)
	@cmake --build --preset $(PRESET) -j $(JOBS)

demo: build
	@sh tests/demo/demo.sh build/$(PRESET)

test: build
	@ctest --preset $(PRESET) -j $(JOBS)

test-long: build
	@ctest --test-dir build/$(PRESET) --output-on-failure -j $(JOBS)

install: build
	@cmake --install build/$(PRESET)

clean:
	rm -rf build

.PHONY: all deps build demo test test-long install clean
