# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# spank_vgpu.so, which is C, spank_vgpu_launch-VERSION.so, which is Go, and their tests; the Makefile includes this file.
# Needs slurm/spank.h of the Slurm that will load it (Debian: libslurm-dev).

GO ?= go
CC ?= cc
BUILD ?= build
SPANK_GOFLAGS ?=
LAUNCH := $(BUILD)/spank_vgpu_launch-$(VERSION).so

# Slurm's own symbols, and its library's, are found at load time, and not every program that loads the plugin has all of them.
spank_flags := -std=gnu11 -O2 -Wall -Wextra -Werror -fPIC -fvisibility=default -D_FORTIFY_SOURCE=2 -fstack-protector-strong \
	-DVGPU_VERSION='"$(VERSION)"'

# Both are linked with what says the version.
$(BUILD)/spank_vgpu.so: $(wildcard spank/*.c spank/*.h) spank/exports.map VERSION $(BUILD)/interposer/base/version.c.o
	@mkdir -p $(@D)
	$(CC) $(spank_flags) -shared -Wl,-z,relro -Wl,-z,lazy -Wl,--version-script=spank/exports.map $(wildcard spank/*.c) \
		$(BUILD)/interposer/base/version.c.o -o $@

# Without a build id, which is made of the flags and so names a folder, and without what git says of it, the same sources give the same
# bytes in whichever folder.
$(LAUNCH): $(wildcard spank/launch/*.go spank/*.h) spank/launch/exports.map \
		$(wildcard $(foreach p,launch grant pages request usage ledger rundir trusted device crashpoint timeline version,internal/$(p)/*.go)) \
		go.mod VERSION $(BUILD)/interposer/base/version.c.o
	@mkdir -p $(@D)
	$(GO) build $(SPANK_GOFLAGS) -trimpath -buildvcs=false -buildmode=c-shared \
		-ldflags "-s -w -buildid= $(GO_LDFLAGS) -extldflags '-Wl,--version-script=$(CURDIR)/spank/launch/exports.map \
			$(abspath $(BUILD))/interposer/base/version.c.o'" \
		-o $@ ./spank/launch

.PHONY: plugin
plugin: $(BUILD)/spank_vgpu.so $(LAUNCH)

test_spank_flags := -std=gnu11 -g -O1 -Wall -Wextra -Werror -Ispank -DVGPU_VERSION='"$(VERSION)"'

# -rdynamic: the plugin finds the host's spank_* where it would find Slurm's.
$(BUILD)/test-spank/testhost: $(wildcard test/spank/*.c test/spank/*.h) spank/plan.h spank/rows.h VERSION spank/whole.c
	@mkdir -p $(@D)
	$(CC) $(test_spank_flags) -rdynamic -o $@ test/spank/*.c -ldl

# Stands for libslurm-vgpu.so: what is preloaded says so.
$(BUILD)/test-spank/libslurm-vgpu.so: test/spank/preloaded/preloaded.c
	@mkdir -p $(@D)
	$(CC) $(test_spank_flags) -shared -fPIC -o $@ $<

.PHONY: test-spank
test-spank: $(BUILD)/spank_vgpu.so $(LAUNCH) $(BUILD)/test-spank/testhost $(BUILD)/test-spank/libslurm-vgpu.so
	$(GO) vet $(SPANK_GOFLAGS) ./spank/launch ./internal/launch
	$(GO) test $(SPANK_GOFLAGS) ./spank/launch ./internal/launch
	! nm -D --defined-only $(BUILD)/spank_vgpu.so | awk '{print $$3}' | \
		grep -vxE 'plugin_(name|type|version)|spank_plugin_version|slurm_spank_[a-z_]+'
	$(BUILD)/test-spank/testhost $(abspath $(BUILD))/spank_vgpu.so $(abspath $(BUILD))/test-spank/libslurm-vgpu.so

.PHONY: bench-spank
bench-spank: $(BUILD)/spank_vgpu.so $(LAUNCH) $(BUILD)/test-spank/testhost $(BUILD)/test-spank/libslurm-vgpu.so
	$(BUILD)/test-spank/testhost $(abspath $(BUILD))/spank_vgpu.so $(abspath $(BUILD))/test-spank/libslurm-vgpu.so bench
