# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# libslurm-vgpu.so and its tests. Needs a C compiler and nothing of CUDA.

CC ?= cc
BUILD ?= build
VERSION ?= $(shell cat VERSION)
comma_ := ,

INTERPOSER_VERSION = -DVGPU_VERSION='"$(VERSION)"'
# For tests: -DVGPU_TEST_RANKS has each lock's rank looked at (base/ranks.h).
INTERPOSER_DEBUG ?=
# Nothing that ends the process, which is someone else's: some compilers bring both checks along by themselves.
INTERPOSER_CFLAGS := -std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIC -fvisibility=hidden \
	-ftls-model=initial-exec -ffile-prefix-map=$(CURDIR)=. -D_GNU_SOURCE -D_FORTIFY_SOURCE=0 -fno-stack-protector -Iinterposer \
	$(INTERPOSER_VERSION) $(INTERPOSER_DEBUG)
INTERPOSER_LDFLAGS := -shared -nostartfiles -Wl,-soname,libslurm-vgpu.so -Wl,-z,defs -Wl,-z,nodelete -Wl,-z,relro \
	-Wl,--no-undefined-version -Wl,--as-needed
INTERPOSER_SOURCES := $(sort $(wildcard interposer/*/*.c interposer/*/*.S))
INTERPOSER_HEADERS := $(wildcard interposer/*.h interposer/*/*.h interposer/*/*.def)
INTERPOSER_OBJECTS := $(patsubst interposer/%,$(BUILD)/interposer/%.o,$(INTERPOSER_SOURCES))

$(BUILD)/interposer/%.o: interposer/% $(INTERPOSER_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(INTERPOSER_CFLAGS) -c $< -o $@

$(BUILD)/interposer/base/version.c.o: VERSION

$(BUILD)/interposer/exports.map: interposer/route/exports.map.in $(INTERPOSER_HEADERS)
	@mkdir -p $(@D)
	$(CC) -E -P -Iinterposer -x c $< -o $@

$(BUILD)/libslurm-vgpu.so: $(INTERPOSER_OBJECTS) $(BUILD)/interposer/exports.map
	$(CC) $(INTERPOSER_LDFLAGS) -Wl,--version-script=$(BUILD)/interposer/exports.map $(INTERPOSER_OBJECTS) -o $@

# The tests: test/interposer/ROOM/NAME.c is a program, NAME that of the source where it is about one. They are linked with
# the simulated driver and run under LD_PRELOAD. Whatever lies there is built and run, and sanitized where nothing below
# says otherwise. Built by another user than root, they need a library that believes that user's pages.
# Building may use all cores; what is judged runs alone.
CORES := $(shell nproc)
INTERPOSER_TEST := test/interposer
INTERPOSER_TEST_BUILD := $(BUILD)/test-interposer
INTERPOSER_TEST_CFLAGS := -std=gnu11 -O1 -g -Wall -Wextra -Werror -D_GNU_SOURCE -Iinterposer -I$(INTERPOSER_TEST)/support -pthread \
	$(INTERPOSER_VERSION)
INTERPOSER_TESTS := $(patsubst $(INTERPOSER_TEST)/%.c,%,$(sort $(wildcard $(INTERPOSER_TEST)/*/*.c)))
INTERPOSER_TESTS := $(filter-out support/% helpers/% bench/%,$(INTERPOSER_TESTS))
INTERPOSER_FUZZERS := $(foreach t,$(INTERPOSER_TESTS),$(if $(filter fuzz_%,$(notdir $t)),$t))
# Linked with neither library, so that they come when the program says.
INTERPOSER_TEST_UNLINKED := route/loaded route/unloaded helpers/started
INTERPOSER_TEST_PROGRAMS := $(filter-out $(INTERPOSER_TEST_UNLINKED),$(INTERPOSER_TESTS)) bench/memory bench/launch
INTERPOSER_TEST_SUPPORT := $(addprefix $(INTERPOSER_TEST)/support/,harness.c fuzz.c things.c)
INTERPOSER_TEST_HEADERS := $(wildcard $(INTERPOSER_TEST)/*/*.h) $(INTERPOSER_HEADERS)
INTERPOSER_SIM := $(BUILD)/sim/libcuda.so.1 $(BUILD)/sim/libnvidia-ml.so.1
INTERPOSER_SIM_LINK := -L$(BUILD)/sim -l:libcuda.so.1 -l:libnvidia-ml.so.1 -Wl,-rpath,$(abspath $(BUILD)/sim) -ldl
INTERPOSER_TEST_LIBRARY := $(if $(filter 0,$(shell id -u)),$(BUILD)/libslurm-vgpu.so,$(INTERPOSER_TEST_BUILD)/libslurm-vgpu.so)

$(INTERPOSER_TEST_BUILD)/libslurm-vgpu.so: $(INTERPOSER_SOURCES) $(INTERPOSER_HEADERS) $(BUILD)/interposer/exports.map
	@mkdir -p $(@D)
	$(CC) $(INTERPOSER_CFLAGS) -DVGPU_TEST_OWNER $(INTERPOSER_LDFLAGS) \
		-Wl,--version-script=$(BUILD)/interposer/exports.map $(INTERPOSER_SOURCES) -o $@

$(INTERPOSER_TEST_BUILD)/support/%.o: $(INTERPOSER_TEST)/support/%.c $(INTERPOSER_TEST_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(INTERPOSER_TEST_CFLAGS) -c $< -o $@

INTERPOSER_TEST_SUPPORT_OBJECTS := $(INTERPOSER_TEST_SUPPORT:$(INTERPOSER_TEST)/%.c=$(INTERPOSER_TEST_BUILD)/%.o)
$(INTERPOSER_TEST_PROGRAMS:%=$(INTERPOSER_TEST_BUILD)/%): $(INTERPOSER_TEST_BUILD)/%: $(INTERPOSER_TEST)/%.c \
		$(INTERPOSER_TEST_SUPPORT_OBJECTS) $(INTERPOSER_TEST_HEADERS) $(INTERPOSER_SIM)
	@mkdir -p $(@D)
	$(CC) $(INTERPOSER_TEST_CFLAGS) $< $(INTERPOSER_TEST_SUPPORT_OBJECTS) $(EXTRA) -o $@ $(INTERPOSER_SIM_LINK)

# Programs that are linked with sources of the library, or of support, instead of having the library in front.
#   $(1): the programs; $(2): the sources; $(3): for the linker
define interposer_linked_with
$(addprefix $(INTERPOSER_TEST_BUILD)/,$(1)): private EXTRA := $(2) $(3)
$(addprefix $(INTERPOSER_TEST_BUILD)/,$(1)): $(2)
endef
interposer_linked = $(eval $(call interposer_linked_with,$(1),$(2),$(3)))
# It needs the C library's own dlsym to compare with.
$(call interposer_linked,route/fuzz_lookup,$(addprefix interposer/base/,libc.c image.c))
$(call interposer_linked,base/image,interposer/base/image.c)
$(call interposer_linked,base/imports base/fuzz_imports,$(addprefix interposer/base/,imports.c image.c))
$(call interposer_linked,process/trust,interposer/process/trust.c)
# What these ask of other parts is the test's own.
$(call interposer_linked,base/table,interposer/base/table.c,-Wl$(comma_)--wrap=mmap)
$(call interposer_linked,context/overhead_changes,interposer/context/overhead.c)
$(call interposer_linked,driver/report,interposer/driver/report.c,-Wl$(comma_)--wrap=mmap)
# Two processes on one account: it is linked without the parts that ask a driver, and what happens in between comes at
# the calls for the ledger's lock.
$(call interposer_linked,account/lock_lost,\
	$(filter-out %/attach.c %/context_cost.c,$(wildcard interposer/account/*.c)) interposer/base/identity.c,\
	-Wl$(comma_)--wrap=vgpu_ledger_lock$(comma_)--wrap=vgpu_ledger_unlock)
# They try arithmetic, which the library keeps to itself.
$(call interposer_linked,nvml/samples,interposer/nvml/samples.c)
$(call interposer_linked,gate/bucket,interposer/gate/bucket.c)
$(call interposer_linked,channels/handles,interposer/channels/handles.c)
# A control device that answers, behind the library's ioctl and in front of the C library's.
INTERPOSER_CONTROL := $(INTERPOSER_TEST_BUILD)/helpers/control.so
INTERPOSER_CONTROL_LINK := -Wl$(comma_)-rpath$(comma_)$(abspath $(dir $(INTERPOSER_CONTROL)))
$(call interposer_linked,channels/channels channels/reach,$(INTERPOSER_CONTROL),$(INTERPOSER_CONTROL_LINK))
$(INTERPOSER_CONTROL): $(INTERPOSER_TEST)/helpers/control.c
	@mkdir -p $(@D)
	$(CC) $(INTERPOSER_TEST_CFLAGS) -shared -fPIC -Wl,-soname,control.so $< -o $@
$(INTERPOSER_TEST_UNLINKED:%=$(INTERPOSER_TEST_BUILD)/%): $(INTERPOSER_TEST_BUILD)/%: $(INTERPOSER_TEST)/%.c
	@mkdir -p $(@D)
	$(CC) $(INTERPOSER_TEST_CFLAGS) $< -o $@ -ldl

# What tests load or start: a library that makes a context while it is loaded, some that look names up, some of many
# names, and one with the driver's name and nothing in it.
INTERPOSER_HELPERS := $(addprefix $(INTERPOSER_TEST_BUILD)/helpers/,asking.so constructor.so poser.so)
$(INTERPOSER_HELPERS): %.so: $(INTERPOSER_HEADERS)
$(INTERPOSER_HELPERS): $(INTERPOSER_TEST_BUILD)/%.so: $(INTERPOSER_TEST)/%.c
	@mkdir -p $(@D)
	$(CC) $(INTERPOSER_TEST_CFLAGS) -shared -fPIC $< -o $@ -ldl
$(INTERPOSER_TEST_BUILD)/helpers/empty.so:
	@mkdir -p $(@D)
	$(CC) -shared -fPIC -nostdlib -Wl,-soname,libcuda.so.1 -x c /dev/null -o $@
INTERPOSER_NAMED := $(addprefix $(INTERPOSER_TEST_BUILD)/helpers/,named.so named_sysv.so)
$(INTERPOSER_TEST_BUILD)/helpers/named.so: private HASH := gnu
$(INTERPOSER_TEST_BUILD)/helpers/named_sysv.so: private HASH := sysv
$(INTERPOSER_NAMED): $(INTERPOSER_TEST)/helpers/named.c
	@mkdir -p $(@D)
	$(CC) $(INTERPOSER_TEST_CFLAGS) -shared -fPIC -Wl,--hash-style=$(HASH) $< -o $@

# A library that calls ioctl, in each way that it can be linked; and as the driver behind a guard.
INTERPOSER_CALLING := $(patsubst %,$(INTERPOSER_TEST_BUILD)/helpers/calling_%.so,lazy now address data silent driver driver_now driver_silent)
$(INTERPOSER_TEST_BUILD)/helpers/calling_lazy.so: private CALLING := -Wl,-z,lazy
$(INTERPOSER_TEST_BUILD)/helpers/calling_now.so: private CALLING := -Wl,-z,relro,-z,now
$(INTERPOSER_TEST_BUILD)/helpers/calling_address.so: private CALLING := -fno-plt -Wl,-z,relro,-z,now
$(INTERPOSER_TEST_BUILD)/helpers/calling_data.so: private CALLING := -DIN_DATA -Wl,-z,lazy
$(INTERPOSER_TEST_BUILD)/helpers/calling_silent.so: private CALLING := -DSILENT
INTERPOSER_CALLING_DRIVER := -DDRIVER -Wl,-soname,libcuda-slurm-vgpu.so -Wl,--no-as-needed $(INTERPOSER_CONTROL) $(INTERPOSER_CONTROL_LINK)
$(INTERPOSER_TEST_BUILD)/helpers/calling_driver.so: private CALLING := $(INTERPOSER_CALLING_DRIVER) -Wl,-z,lazy
$(INTERPOSER_TEST_BUILD)/helpers/calling_driver_now.so: private CALLING := $(INTERPOSER_CALLING_DRIVER) -Wl,-z,relro,-z,now
$(INTERPOSER_TEST_BUILD)/helpers/calling_driver_silent.so: private CALLING := $(INTERPOSER_CALLING_DRIVER) -DSILENT
$(INTERPOSER_CALLING): $(INTERPOSER_TEST)/helpers/calling.c $(INTERPOSER_CONTROL) $(INTERPOSER_SIM)
	@mkdir -p $(@D)
	$(CC) $(INTERPOSER_TEST_CFLAGS) -shared -fPIC $< -o $@ $(CALLING) $(INTERPOSER_SIM_LINK)

.PHONY: build-test-interposer build-test-interposer-sanitize test-interposer test-interposer-sanitize test-interposer-asan test-interposer-tsan fuzz-interposer kill-rounds bench-interposer

build-test-interposer: $(INTERPOSER_TEST_LIBRARY) $(BUILD)/sim/nvidia-smi $(BUILD)/sim/vgpu-fill \
		$(addprefix $(INTERPOSER_TEST_BUILD)/,$(INTERPOSER_TEST_PROGRAMS) $(INTERPOSER_TEST_UNLINKED)) \
		$(INTERPOSER_HELPERS) $(INTERPOSER_NAMED) $(INTERPOSER_CALLING) $(INTERPOSER_TEST_BUILD)/helpers/empty.so

test-interposer:
	@$(MAKE) --no-print-directory -j$(CORES) build-test-interposer $(INTERPOSER_OBJECTS)
	VGPU_TEST_SIM=$(abspath $(BUILD)/sim) $(INTERPOSER_TEST)/run.sh $(INTERPOSER_TEST_BUILD) \
		$(abspath $(INTERPOSER_TEST_LIBRARY)) $(INTERPOSER_TESTS)

bench-interposer: $(INTERPOSER_TEST_LIBRARY) $(INTERPOSER_TEST_BUILD)/bench/memory $(INTERPOSER_TEST_BUILD)/bench/launch
	for program in memory launch; do \
		VGPU_TEST_SIM=$(abspath $(BUILD)/sim) LD_PRELOAD=$(abspath $(INTERPOSER_TEST_LIBRARY)) \
			$(INTERPOSER_TEST_BUILD)/bench/$$program || exit 1; \
	done

# A sanitizer wants to be loaded first, so here the library is part of the program: its functions
# come first all the same. Its dlsym stays out, which the sanitizers themselves would run into.
INTERPOSER_UNSANITIZED := $(INTERPOSER_TEST_UNLINKED) \
	base/image base/table process/trust driver/report context/overhead_changes account/lock_lost
# The library must come by LD_PRELOAD, or two processes would have to be as fast as without.
INTERPOSER_UNSANITIZED += route/route channels/reach account/lock_lost_stepped
# Holders of the simulated driver's lock that end with it are what TSan takes for a mistake; and what has one thread.
INTERPOSER_SANITIZED_BY_ASAN_ALONE := account/killed process/threads $(INTERPOSER_FUZZERS)
INTERPOSER_SANITIZED_asan := $(filter-out $(INTERPOSER_UNSANITIZED),$(INTERPOSER_TESTS))
INTERPOSER_SANITIZED_tsan := $(filter-out $(INTERPOSER_SANITIZED_BY_ASAN_ALONE),$(INTERPOSER_SANITIZED_asan))
INTERPOSER_C_SOURCES := $(filter-out interposer/route/scope.c,$(filter %.c,$(INTERPOSER_SOURCES)))

define interposer_sanitized
$(INTERPOSER_TEST_BUILD)/$(1)/library/%.o: interposer/%.c $(INTERPOSER_HEADERS)
	@mkdir -p $$(@D)
	$(CC) $(INTERPOSER_TEST_CFLAGS) -fno-omit-frame-pointer -fsanitize=$(2) -DVGPU_TEST_OWNER -DVGPU_TEST_LOCKS -DVGPU_TEST_RANKS -c $$< -o $$@
$(INTERPOSER_TEST_BUILD)/$(1)/support/%.o: $(INTERPOSER_TEST)/support/%.c $(INTERPOSER_TEST_HEADERS)
	@mkdir -p $$(@D)
	$(CC) $(INTERPOSER_TEST_CFLAGS) -fno-omit-frame-pointer -fsanitize=$(2) -DVGPU_TEST_OWNER -DVGPU_TEST_LOCKS -DVGPU_TEST_RANKS -c $$< -o $$@
INTERPOSER_OBJECTS_$(1) := $(INTERPOSER_C_SOURCES:interposer/%.c=$(INTERPOSER_TEST_BUILD)/$(1)/library/%.o) \
	$(INTERPOSER_TEST_SUPPORT:$(INTERPOSER_TEST)/%.c=$(INTERPOSER_TEST_BUILD)/$(1)/%.o)
$(INTERPOSER_TEST_BUILD)/$(1)/%: $(INTERPOSER_TEST)/%.c $$(INTERPOSER_OBJECTS_$(1)) $(INTERPOSER_TEST_HEADERS) $(INTERPOSER_SIM)
	@mkdir -p $$(@D)
	$(CC) $(INTERPOSER_TEST_CFLAGS) -fno-omit-frame-pointer -fsanitize=$(2) -DVGPU_TEST_OWNER -DVGPU_TEST_LOCKS -DVGPU_TEST_RANKS $$< \
		$$(INTERPOSER_OBJECTS_$(1)) $$(EXTRA) -o $$@ $(INTERPOSER_SIM_LINK)
$(INTERPOSER_TEST_BUILD)/$(1)/channels/channels: private EXTRA := $(INTERPOSER_CONTROL) $(INTERPOSER_CONTROL_LINK)
$(INTERPOSER_TEST_BUILD)/$(1)/channels/channels: $(INTERPOSER_CONTROL)
endef
$(eval $(call interposer_sanitized,asan,address$(comma_)undefined -fno-sanitize-recover=all))
$(eval $(call interposer_sanitized,tsan,thread))

# A thousand rounds of killing of each kind, where make test has fifty.
kill-rounds: $(INTERPOSER_TEST_LIBRARY) $(INTERPOSER_TEST_BUILD)/account/killed
	VGPU_TEST_SIM=$(abspath $(BUILD)/sim) VGPU_KILL_ROUNDS=$${VGPU_KILL_ROUNDS:-1000} \
		LD_PRELOAD=$(abspath $(INTERPOSER_TEST_LIBRARY)) $(INTERPOSER_TEST_BUILD)/account/killed

# How long each fuzzer runs in make fuzz.
FUZZ_SECONDS ?= 120

fuzz-interposer: $(INTERPOSER_FUZZERS:%=$(INTERPOSER_TEST_BUILD)/asan/%)
	@for fuzzer in $^; do echo "# $$fuzzer"; \
		VGPU_TEST_SIM=$(abspath $(BUILD)/sim) VGPU_FUZZ_SECONDS=$(FUZZ_SECONDS) \
		ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 $$fuzzer || exit 1; done

build-test-interposer-sanitize: $(foreach s,asan tsan,$(INTERPOSER_SANITIZED_$(s):%=$(INTERPOSER_TEST_BUILD)/$(s)/%)) \
		$(BUILD)/sim/nvidia-smi $(INTERPOSER_CALLING) $(INTERPOSER_TEST_BUILD)/helpers/constructor.so

# Neither sanitizer's run judges a clock strictly, so they may run side by side.
test-interposer-sanitize:
	@$(MAKE) --no-print-directory -j$(CORES) build-test-interposer-sanitize
	@$(MAKE) --no-print-directory -j2 --output-sync=target test-interposer-asan test-interposer-tsan

test-interposer-asan: build-test-interposer-sanitize
	VGPU_TEST_SIM=$(abspath $(BUILD)/sim) ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 \
		$(INTERPOSER_TEST)/run.sh $(INTERPOSER_TEST_BUILD)/asan '' $(INTERPOSER_SANITIZED_asan)

test-interposer-tsan: build-test-interposer-sanitize
	VGPU_TEST_SIM=$(abspath $(BUILD)/sim) TSAN_OPTIONS=halt_on_error=1:report_mutex_bugs=0 \
		$(INTERPOSER_TEST)/run.sh $(INTERPOSER_TEST_BUILD)/tsan '' $(INTERPOSER_SANITIZED_tsan)
