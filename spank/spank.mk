# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# spank_vgpu.so and its tests; the Makefile includes this file. Needs slurm/spank.h of the Slurm
# that will load it (Debian: libslurm-dev).

GO ?= go
CC ?= cc
BUILD ?= build
SPANK_GOFLAGS ?=

spank_sources := $(wildcard spank/*.c spank/*.h spank/*.go) spank/exports.map \
	$(wildcard internal/launch/*.go internal/grant/*.go internal/request/*.go \
	internal/usage/*.go internal/ledger/*.go internal/rundir/*.go internal/trusted/*.go internal/device/*.go \
	internal/crashpoint/*.go)

# Without a build id, which is made of the flags and so names a folder, and without what git says of it, the same sources give the same
# bytes in whichever folder.
# Go writes a header of its exports beside the library, so it must land in a folder of its own
# kind: in spank/ it would stand among ours.
# The linker is given what says the version.
$(BUILD)/spank_vgpu.so: $(spank_sources) go.mod $(BUILD)/interposer/base/version.c.o
	@mkdir -p $(@D)
	$(GO) build $(SPANK_GOFLAGS) -trimpath -buildvcs=false -buildmode=c-shared \
		-ldflags "-s -w -buildid= $(GO_LDFLAGS) -extldflags '-Wl,--version-script=$(CURDIR)/spank/exports.map \
			$(abspath $(BUILD))/interposer/base/version.c.o'" \
		-o $@ ./spank

test_spank_flags := -std=gnu11 -g -O1 -Wall -Wextra -Werror -Ispank

# -rdynamic: the plugin finds the host's spank_* where it would find Slurm's.
$(BUILD)/test-spank/testhost: $(wildcard test/spank/*.c test/spank/*.h) spank/plan.h
	@mkdir -p $(@D)
	$(CC) $(test_spank_flags) -rdynamic -o $@ test/spank/*.c -ldl

# Stands for libslurm-vgpu.so: what is preloaded says so.
$(BUILD)/test-spank/libslurm-vgpu.so: test/spank/preloaded/preloaded.c
	@mkdir -p $(@D)
	$(CC) $(test_spank_flags) -shared -fPIC -o $@ $<

.PHONY: test-spank
test-spank: $(BUILD)/spank_vgpu.so $(BUILD)/test-spank/testhost $(BUILD)/test-spank/libslurm-vgpu.so
	$(GO) vet $(SPANK_GOFLAGS) ./spank ./internal/launch
	$(GO) test $(SPANK_GOFLAGS) ./spank ./internal/launch
	! nm -D --defined-only $(BUILD)/spank_vgpu.so | awk '{print $$3}' | \
		grep -vxE 'plugin_(name|type|version)|spank_plugin_version|slurm_spank_[a-z_]+'
	$(BUILD)/test-spank/testhost $(abspath $(BUILD))/spank_vgpu.so $(abspath $(BUILD))/test-spank/libslurm-vgpu.so

.PHONY: bench-spank
bench-spank: $(BUILD)/spank_vgpu.so $(BUILD)/test-spank/testhost $(BUILD)/test-spank/libslurm-vgpu.so
	$(BUILD)/test-spank/testhost $(abspath $(BUILD))/spank_vgpu.so $(abspath $(BUILD))/test-spank/libslurm-vgpu.so bench
