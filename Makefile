# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# `make demo` and `make test` install what they need and prepare themselves; the other targets
# expect what `make deps` installs. Everything built goes to build/.

# sudo drops the PATH that a hand-installed Go needs.
GO ?= $(or $(shell command -v go 2>/dev/null),/usr/local/go/bin/go)
# Said before a minute of C is compiled.
ifneq ($(filter all build packages install,$(or $(MAKECMDGOALS),all)),)
ifeq ($(shell command -v $(GO) 2>/dev/null),)
$(error no Go is here ($(GO)): install it from go.dev, or as golang-go of Debian 13 and later, which fetches the release of go.mod by itself; or give GO=PROGRAM)
endif
endif
CC ?= cc
DESTDIR ?=
prefix ?= /usr
bindir ?= $(prefix)/bin
sbindir ?= $(prefix)/sbin
libdir ?= $(prefix)/lib
datadir ?= $(prefix)/share
mandir ?= $(datadir)/man
unitdir ?= $(prefix)/lib/systemd/system
zshdir ?= $(datadir)/zsh/site-functions
docdir ?= $(datadir)/doc/slurm-vgpu
sysconfdir ?= /etc
# Debian's place, that of Slurm's own packages, or none: which Slurm the plugin is for cannot be guessed.
SLURM_PLUGINDIR ?= $(firstword $(wildcard /usr/lib/$(shell $(CC) -print-multiarch 2>/dev/null)/slurm-wlm /usr/lib64/slurm /usr/lib/slurm /usr/local/lib/slurm))

BUILD := build
# What programs and libraries say of themselves.
VERSION := $(shell cat VERSION)
SUDO := $(if $(filter 0,$(shell id -u)),,sudo --preserve-env=PATH)

# go-nvml compiles nvml.h, which warns of its own deprecated types.
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations
export GO CC
# A clone that root builds and another user owns has no version-control stamp to give.
GO_LDFLAGS = -X github.com/slurm-vgpu/slurm-vgpu/internal/version.Number=$(VERSION)
GOBUILD = $(GO) build -trimpath -buildvcs=false -ldflags "$(GO_LDFLAGS)"
STATICCHECK = $(GO) tool -modfile=tools/go.mod staticcheck

# A folder with a main package is a command.
command_prolog := vgpu-prolog
command_epilog := vgpu-epilog
command_gres := vgpu-gres
command_ctl := vgpuctl
command_exporter := vgpu-exporter
command_draw := vgpu-draw
command_vgpud := vgpud
COMMANDS := $(foreach d,prolog epilog gres ctl exporter draw vgpud,$(if $(wildcard $(d)/main.go),$(command_$(d))))

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:

# The parts in C say themselves how they are built and tested.
-include test/gpu/gpu.mk
include test/enter/enter.mk
include test/cgroup/cgroup.mk
PARTS := $(wildcard interposer/interposer.mk guard/guard.mk test/simgpu/simgpu.mk spank/spank.mk)
include $(PARTS)
SIM := libcuda.so.1 libnvidia-ml.so.1 libnvidia-opencl.so.1 nvidia-smi vgpu-fill vgpu-busy vgpu-cheat simgpu-control
LIBS := $(if $(filter interposer/%,$(PARTS)),$(BUILD)/libslurm-vgpu.so $(GUARDS)) \
	$(if $(filter test/%,$(PARTS)),$(SIM:%=$(BUILD)/sim/%)) \
	$(if $(filter spank/%,$(PARTS)),$(BUILD)/spank_vgpu.so $(LAUNCH))
TESTS := $(foreach p,$(PARTS),test-$(basename $(notdir $(p)))) \
	$(if $(filter interposer/%,$(PARTS)),test-interposer-sanitize)

.PHONY: all build deps test test-unit test-race test-e2e test-e2e-one test-e2e-other test-installed test-releases test-machine plugindir lint golangci generate fmt check demo cluster cluster-down \
	fuzz site-report bench soak soak-audit scale simulation mutants coverage install installed uninstall packages test-packages release clean help FORCE

all: build

# What the shells complete of the programs that people type.
TYPED := vgpuctl vgpu-gres vgpu-exporter
COMPLETIONS := $(foreach program,$(TYPED),$(foreach name,bash/$(program) zsh/_$(program) fish/$(program).fish,$(BUILD)/completions/$(name)))

OUTPUTS := $(LIBS) $(COMMANDS:%=$(BUILD)/%) $(COMPLETIONS)

build: $(OUTPUTS) ## build everything into build/

# What each job starts calls nothing of C: without the C library to load it touches a tenth less memory as it starts.
define go_command
$(BUILD)/$(command_$(1)): FORCE
	@mkdir -p $$(@D)
	$(if $(filter prolog epilog,$(1)),CGO_ENABLED=0 )$$(GOBUILD) -o $$@ ./$(1)
endef
$(foreach d,prolog epilog gres ctl exporter draw vgpud,$(eval $(call go_command,$(d))))

define completions
$(BUILD)/completions/bash/$(1) $(BUILD)/completions/zsh/_$(1) $(BUILD)/completions/fish/$(1).fish: $(BUILD)/$(1)
	@mkdir -p $$(@D)
	@$$< completion $$(notdir $$(@D)) > $$@
endef
$(foreach program,$(TYPED),$(eval $(call completions,$(program))))

$(BUILD)/vgpu-cluster: FORCE
	@mkdir -p $(@D)
	$(GOBUILD) -o $@ ./test/cluster/vgpu-cluster
$(BUILD)/vgpu-demo: FORCE
	@mkdir -p $(@D)
	$(GOBUILD) -o $@ ./test/demo
$(BUILD)/vgpu-bench: FORCE
	@mkdir -p $(@D)
	$(GOBUILD) -o $@ ./test/bench
$(BUILD)/vgpu-soak: FORCE
	@mkdir -p $(@D)
	$(GOBUILD) -o $@ ./test/soak
$(BUILD)/summary: FORCE
	@mkdir -p $(@D)
	$(GOBUILD) -o $@ ./test/summary

deps: ## install what building and testing need (apt; nothing is started or enabled)
	@test/setup.sh

# What judges a clock by a few percent has the machine to itself. The end-to-end tests wait most of the time, for Slurm: two halves
# of them go side by side, and what judges no clock in the time that they leave.
TESTS_OF_NO_CLOCK := lint test-race $(filter test-interposer-sanitize,$(TESTS))

# Recipes rather than prerequisites: the parts are built after the packages they need came.
test: ## install what is missing and run every test there is
	@test/setup.sh --containers
	@$(MAKE) --no-print-directory $(E2E_NEEDS) $(BUILD)/summary
	@test/rooted.sh $(BUILD)/summary -- $(MAKE) --no-print-directory -- $(filter-out $(TESTS_OF_NO_CLOCK),$(TESTS)) \
		-- test-e2e-one test-e2e-other -- $(TESTS_OF_NO_CLOCK)

# The board for Grafana by Grafana's schema: a module of its own, so that the product's needs none of it.
TEST_BOARD = cd test/dashboard && $(GO) test $(GOTESTFLAGS) ./...
test-unit: ## the Go tests, without a cluster
	@$(GO) test $(GOTESTFLAGS) ./...
	@$(TEST_BOARD)

test-race: ## the Go tests under the race detector
	@$(GO) test -race -timeout 30m $(GOTESTFLAGS) ./...
	@$(TEST_BOARD)

# The time limit is each package's and only ends a run that hangs: test/e2e took 824 s on two busy cores.
E2E = $(SUDO) env $(E2E_ENV) $(GO) test -tags e2e -count=1 -timeout 60m -p 1 $(GOTESTFLAGS)
E2E_PROGRAMS := $(SIM:%=$(BUILD)/sim/%) $(BUILD)/test-enter/enter.so $(BUILD)/test-cgroup/cgroup.so
E2E_NEEDS := build $(E2E_PROGRAMS)
test-e2e: $(E2E_NEEDS) ## every fault and the main job on a private cluster (root)
	@$(E2E) ./test/cluster ./test/e2e

test-installed: $(E2E_PROGRAMS) ## the same with the programs that are installed below prefix, as packages or by make install
	@$(E2E) ./test/cluster ./test/e2e
test-installed: E2E_ENV = VGPU_CLUSTER_PREFIX=$(prefix)

# The same in two halves that take as long, each on a cluster of its own, for `make test`, which has built: two of make at a time
# must not. What is in no file of the one is in the other.
E2E_HALF = ^($(shell grep -ho '^func Test[A-Za-z0-9_]*' test/e2e/[a-l]*_test.go | cut -c6- | paste -sd '|'))$$
test-e2e-one:
	@$(E2E) -run '$(E2E_HALF)' ./test/e2e
test-e2e-other:
	@$(E2E) -skip '$(E2E_HALF)' ./test/cluster ./test/e2e

test-releases: ## the tests on Debian 12, 13 and sid, each with its own Slurm (root; downloads): ARGS="--keep SUITE…"
	@$(SUDO) test/releases/run.sh $(ARGS)

test-machine: ## packages, jobs and boots on a Debian 13 in qemu, with systemd and cgroup v2 (root; downloads; half an hour)
	@$(SUDO) test/machine/run.sh $(ARGS)

lint: $(BUILD)/libslurm-vgpu.so ## gofmt, go vet, staticcheck, codespell; sizes of files and functions, and who imports whom
	@out=$$(find . -name '*.go' -not -path './$(BUILD)/*' -exec gofmt -l {} +); \
	if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	$(GO) vet -tags e2e ./...
	$(STATICCHECK) -tags e2e ./...
	$(GO) test -count=1 ./test/shape
	interposer/checks/rooms.sh $(BUILD)/libslurm-vgpu.so
	interposer/checks/names.sh
	interposer/checks/tuning.sh
	codespell
	mandoc -Tlint -W error $(filter-out $(foreach page,$(wildcard docs/man/*),$(if $(shell grep -l '^\.so ' $(page)),$(page))),$(wildcard docs/man/*))

# Not part of lint: to build it takes some minutes, once.
GOLANGCI = $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
golangci: ## more linters, by .golangci.yml; builds golangci-lint (downloads; minutes, once)
	$(GOLANGCI) run ./...

generate: ## what is made of tables in Go (options for jobs, keys of config.yaml) and of interposer/api/layout.h; the files are committed
	@$(GO) generate ./...

fmt: ## gofmt
	gofmt -l -w $$(find . -name '*.go' -not -path './$(BUILD)/*')

check: lint test-unit $(TESTS) ## lint and all tests that need neither Slurm nor root

demo: deps ## the main job before your eyes, on a private cluster
	@test/quietly.sh build $(MAKE) --no-print-directory build $(BUILD)/vgpu-demo
	@$(SUDO) $(BUILD)/vgpu-demo

cluster: deps ## a private cluster to play with; it stays up
	@test/quietly.sh build $(MAKE) --no-print-directory build $(BUILD)/vgpu-cluster
	@$(SUDO) $(BUILD)/vgpu-cluster up

cluster-down: ## stop it
	@$(MAKE) --no-print-directory --silent $(BUILD)/vgpu-cluster
	@$(SUDO) $(BUILD)/vgpu-cluster down

# One package and one target at a time is what go test -fuzz takes.
fuzz: fuzz-interposer ## every fuzzer for FUZZ_SECONDS, with new seeds; what fails prints its seed
	@$(GO) list ./... | while read -r package; do \
		$(GO) test -list '^Fuzz' "$$package" | grep '^Fuzz' | while read -r fuzzer; do \
			$(GO) test -run '^$$' -fuzz "^$$fuzzer\$$" -fuzztime $(FUZZ_SECONDS)s "$$package" || exit 1; \
		done || exit 1; done
	@cd gres && lua5.1 vgpu_fuzz.lua $$(date +%s) 200

site-report: ## a text about this node's GPUs, driver and systems, to send in: ARGS="--gpu 1" (root; docs/supported.md)
	@test/quietly.sh build $(MAKE) --no-print-directory build
	@$(SUDO) packaging/site-report.sh $(ARGS)

bench: build $(BUILD)/vgpu-bench $(BUILD)/test-interposer/bench/memory $(BUILD)/test-interposer/bench/launch $(BUILD)/test-spank/testhost ## measure what docs/benchmarks.md says
	@$(SUDO) $(BUILD)/vgpu-bench
	@$(SUDO) $(BUILD)/vgpu-bench -only throughput

mutants: ## put small faults into copies of the sources, one at a time: do the fast tests notice? MUTANTS='-areas spank'
	@$(GO) run ./test/mutants $(MUTANTS)

SOAK_SECONDS ?= 180
soak: build $(BUILD)/vgpu-soak ## two nodes kept busy for SOAK_SECONDS, and again with kill -9; is each run accounted, nothing left?
	@$(SUDO) $(BUILD)/vgpu-soak -seconds $(SOAK_SECONDS) $(SOAK_FLAGS)
AUDITED_JOBS ?= 2000
soak-audit: build $(BUILD)/vgpu-soak ## short jobs that use GPUs, audited all the time: is one of them called a stray?
	@$(SUDO) $(BUILD)/vgpu-soak -audited $(AUDITED_JOBS) $(SOAK_FLAGS)
SCALE_NODES ?= 16
SCALE_JOBS ?= 10000
scale: build $(BUILD)/vgpu-soak ## SCALE_JOBS jobs of two users through SCALE_NODES nodes, with kill -9; is each run accounted, nothing left?
	@$(SUDO) $(BUILD)/vgpu-soak -scale $(SCALE_JOBS) -nodes $(SCALE_NODES) -cpus 4 $(SOAK_FLAGS)

simulation: ## a day of mixed slices on 1,000 nodes, without running anything: waits and fragments by who chooses GPUs (--json prints the numbers)
	@$(GO) run ./test/simulation -svg docs/pictures/simulation.svg $(SIMULATION_FLAGS)

coverage: ## what of CUDA and NVML is covered: reads the headers there are, writes docs/cuda-coverage.md
	@$(GO) run ./test/coverage

INSTALL ?= install
# What is installed: mode, source, destination. Nothing of it is active before an administrator
# says so; the files below share/slurm-vgpu are there to be copied.
share := $(datadir)/slurm-vgpu
put = $(foreach file,$(3),$(1)|$(file)|$(2)/$(notdir $(file)))
INSTALLED = \
	$(call put,0755,$(libdir)/slurm-vgpu,$(BUILD)/vgpu-prolog $(BUILD)/vgpu-epilog $(BUILD)/vgpu-draw $(BUILD)/libslurm-vgpu.so $(GUARDS)) \
	$(call put,0755,$(SLURM_PLUGINDIR),$(BUILD)/spank_vgpu.so $(LAUNCH)) \
	$(call put,0755,$(bindir),$(BUILD)/vgpuctl $(BUILD)/vgpu-exporter) \
	$(call put,0755,$(sbindir),$(BUILD)/vgpu-gres $(BUILD)/vgpud) \
	$(call put,0644,$(share),$(wildcard gres/vgpu.lua gres/vgpu_parse.lua gres/vgpu_priority.lua gres/vgpu_shards.lua gres/vgpu_sizes.lua gres/vgpu_table.lua gres/vgpu_whole.lua gres/job_submit.lua gres/cli_filter.lua)) \
	$(call put,0644,$(share),$(wildcard packaging/*.example)) \
	$(call put,0755,$(share),packaging/site-report.sh) \
	$(call put,0644,$(share)/plugstack.d,$(wildcard packaging/plugstack.d/*)) \
	$(call put,0644,$(unitdir),$(wildcard packaging/systemd/*)) \
	$(call put,0644,$(share)/completions,$(wildcard packaging/completions/*)) \
	$(call put,0644,$(share)/modprobe.d,$(wildcard packaging/modprobe.d/*)) \
	$(call put,0644,$(share)/udev,$(wildcard packaging/udev/*)) \
	$(call put,0644,$(share)/grafana,$(wildcard packaging/grafana/*)) \
	$(call put,0644,$(share)/prometheus,$(wildcard packaging/prometheus/*)) \
	$(call put,0644,$(share)/containers,$(wildcard packaging/containers/*)) \
	$(call put,0644,$(share)/logrotate.d,$(wildcard packaging/logrotate.d/*)) \
	$(call put,0644,$(prefix)/lib/tmpfiles.d,$(wildcard packaging/tmpfiles.d/*.conf)) \
	$(call put,0644,$(datadir)/bash-completion/completions,$(filter $(BUILD)/completions/bash/%,$(COMPLETIONS))) \
	$(call put,0644,$(zshdir),$(filter $(BUILD)/completions/zsh/%,$(COMPLETIONS))) \
	$(call put,0644,$(datadir)/fish/vendor_completions.d,$(filter $(BUILD)/completions/fish/%,$(COMPLETIONS))) \
	$(foreach n,1 5 7 8,$(call put,0644,$(mandir)/man$(n),$(wildcard docs/man/*.$(n)))) \
	$(call put,0644,$(docdir),$(wildcard LICENSE README.md SECURITY.md CONTRIBUTING.md CHANGELOG.md)) \
	$(foreach file,$(shell find examples -type f 2>/dev/null),$(if $(filter %.sh,$(file)),0755,0644)|$(file)|$(docdir)/$(file)) \
	$(foreach file,$(shell find docs packaging -name '*.md' 2>/dev/null) $(wildcard docs/pictures/*),0644|$(file)|$(docdir)/$(file))

plugindir:
	@[ -n "$(SLURM_PLUGINDIR)" ] || { echo "no folder of Slurm's plugins is here, so that it is not known for which Slurm to build:" \
		"install slurm-wlm-basic-plugins (Debian's Slurm), slurm-smd (SchedMD's) or slurm (rpm), or give SLURM_PLUGINDIR=FOLDER" >&2; exit 1; }

# Where install puts things, for tests.
installed:
	@printf '%s\n' $(foreach entry,$(INSTALLED),'$(lastword $(subst |, ,$(entry)))')

install: plugindir build ## install below DESTDIR, prefix, libdir, sysconfdir and SLURM_PLUGINDIR
	@for entry in $(foreach e,$(INSTALLED),'$(e)'); do \
		mode=$${entry%%|*}; rest=$${entry#*|}; from=$${rest%%|*}; to=$(DESTDIR)$${rest#*|}; \
		echo "$$to"; $(INSTALL) -D -m $$mode "$$from" "$$to" || exit 1; \
	done
	@# The scripts and files name the usual places; a package that goes elsewhere changes them.
	@find $(DESTDIR)$(share) $(DESTDIR)$(unitdir)/slurm-vgpu-* -type f -exec sed -i -e 's|/usr/share/slurm-vgpu|$(share)|g' \
		-e 's|/usr/lib/slurm-vgpu|$(libdir)/slurm-vgpu|g' -e 's|/usr/sbin/vgpu|$(sbindir)/vgpu|g' \
		-e 's|/usr/bin/vgpu|$(bindir)/vgpu|g' {} +
	@$(INSTALL) -d $(DESTDIR)$(sysconfdir)/slurm-vgpu

uninstall: ## remove what install put there; configuration stays
	@for entry in $(foreach e,$(INSTALLED),'$(e)'); do rm -f "$(DESTDIR)$${entry##*|}"; done
	@rmdir $(DESTDIR)/dev/slurm-vgpu 2>/dev/null || true
	@rm -rf $(DESTDIR)/dev/slurm-vgpu-gpus
	@find $(DESTDIR)$(libdir)/slurm-vgpu $(DESTDIR)$(share) $(DESTDIR)$(docdir) -depth -type d -empty -delete 2>/dev/null || true

packages: plugindir build ## deb and rpm in build/packages; RELEASE, RPM_PLUGINDIR and FORMATS change them
	@GO="$(GO)" SLURM_PLUGINDIR="$(SLURM_PLUGINDIR)" packaging/packages/build.sh $(BUILD) $(BUILD)/packages

# PACKAGEFLAGS=--install is for a machine that is thrown away: it installs and removes them.
test-packages: packages $(BUILD)/vgpu-demo ## what is in the packages, and whether a second build gives the same bytes
	@packaging/packages/test.sh $(BUILD) $(BUILD)/packages $(PACKAGEFLAGS)

# TESTED="test test-releases": the targets that have passed on this commit. ARGS=--dry-run makes no tag.
release: ## build/release, with notes and checksums, and the tag: VERSION=0.1.0 TESTED="test test-releases"
	@MAKE="$(MAKE)" TESTED="$(TESTED)" packaging/release.sh "$(VERSION)" $(ARGS)

clean: ## remove build/
	rm -rf $(BUILD)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST)) test/gpu/gpu.mk
