# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# libslurm-vgpu.so and its tests. Needs a C compiler and nothing of CUDA.

CC ?= cc
BUILD ?= build

# Nothing that ends the process, which is someone else's: some compilers bring both checks along by themselves.
INTERPOSER_CFLAGS := -std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIC -fvisibility=hidden \
	-ftls-model=initial-exec -D_GNU_SOURCE -D_FORTIFY_SOURCE=0 -fno-stack-protector -Iinterposer
INTERPOSER_LDFLAGS := -shared -nostartfiles -Wl,-soname,libslurm-vgpu.so -Wl,-z,defs -Wl,-z,nodelete -Wl,-z,relro \
	-Wl,--no-undefined-version -Wl,--as-needed
INTERPOSER_SOURCES := $(sort $(wildcard interposer/*/*.c interposer/*/*.S))
INTERPOSER_HEADERS := $(wildcard interposer/*/*.h interposer/*/*.def)
INTERPOSER_OBJECTS := $(patsubst interposer/%,$(BUILD)/interposer/%.o,$(INTERPOSER_SOURCES))

$(BUILD)/interposer/%.o: interposer/% $(INTERPOSER_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(INTERPOSER_CFLAGS) -c $< -o $@

$(BUILD)/interposer/exports.map: interposer/route/exports.map.in $(INTERPOSER_HEADERS)
	@mkdir -p $(@D)
	$(CC) -E -P -Iinterposer -x c $< -o $@

$(BUILD)/libslurm-vgpu.so: $(INTERPOSER_OBJECTS) $(BUILD)/interposer/exports.map
	$(CC) $(INTERPOSER_LDFLAGS) -Wl,--version-script=$(BUILD)/interposer/exports.map $(INTERPOSER_OBJECTS) -o $@

# The tests: programs that are linked with the simulated driver and run under LD_PRELOAD. Built by
# another user than root, they need a library that believes that user's pages.
INTERPOSER_TEST := test/interposer
INTERPOSER_TEST_BUILD := $(BUILD)/test-interposer
INTERPOSER_TEST_CFLAGS := -std=gnu11 -O1 -g -Wall -Wextra -Werror -D_GNU_SOURCE -Iinterposer -pthread
INTERPOSER_FUZZERS := fuzz_folder fuzz_ledger fuzz_lookup
INTERPOSER_TEST_PROGRAMS := routes memory pools graphs inflight handles processes ledger robbed stepped images hostile views devices nvml arrays growth kernels \
	contexts sharing frees small starts threads racing announced killed asked engines multicast interop exports foreign_pools shares fills copies waits marks bench bench_launch \
	controller controlled controlled_turns counted decided metered timed hosted hosted_launches hosted_others grown parts held returns questions passes turns neighbours own_claims siblings streams pace \
	$(INTERPOSER_FUZZERS)
INTERPOSER_TEST_SUPPORT := $(INTERPOSER_TEST)/harness.c $(INTERPOSER_TEST)/fuzz.c $(INTERPOSER_TEST)/things.c
INTERPOSER_TEST_HEADERS := $(wildcard $(INTERPOSER_TEST)/*.h) $(INTERPOSER_HEADERS)
INTERPOSER_SIM := $(BUILD)/sim/libcuda.so.1 $(BUILD)/sim/libnvidia-ml.so.1
INTERPOSER_SIM_LINK := -L$(BUILD)/sim -l:libcuda.so.1 -l:libnvidia-ml.so.1 -Wl,-rpath,$(abspath $(BUILD)/sim) -ldl
INTERPOSER_TEST_LIBRARY := $(if $(filter 0,$(shell id -u)),$(BUILD)/libslurm-vgpu.so,$(INTERPOSER_TEST_BUILD)/libslurm-vgpu.so)

$(INTERPOSER_TEST_BUILD)/libslurm-vgpu.so: $(INTERPOSER_SOURCES) $(INTERPOSER_HEADERS) $(BUILD)/interposer/exports.map
	@mkdir -p $(@D)
	$(CC) $(INTERPOSER_CFLAGS) -DVGPU_TEST_OWNER $(INTERPOSER_LDFLAGS) \
		-Wl,--version-script=$(BUILD)/interposer/exports.map $(INTERPOSER_SOURCES) -o $@

$(INTERPOSER_TEST_PROGRAMS:%=$(INTERPOSER_TEST_BUILD)/%): $(INTERPOSER_TEST_BUILD)/%: $(INTERPOSER_TEST)/%.c \
		$(INTERPOSER_TEST_SUPPORT) $(INTERPOSER_TEST_HEADERS) $(INTERPOSER_SIM)
	@mkdir -p $(@D)
	$(CC) $(INTERPOSER_TEST_CFLAGS) $< $(INTERPOSER_TEST_SUPPORT) $(EXTRA) -o $@ $(INTERPOSER_SIM_LINK)
# It needs the C library's own dlsym to compare with.
$(INTERPOSER_TEST_BUILD)/fuzz_lookup: private EXTRA := interposer/base/libc.c interposer/base/image.c
$(INTERPOSER_TEST_BUILD)/images: private EXTRA := interposer/base/image.c
$(INTERPOSER_TEST_BUILD)/images: interposer/base/image.c
# Two processes on one account: it is linked without the parts that ask a driver, and what happens in between comes at
# the calls for the ledger's lock.
INTERPOSER_ACCOUNT := $(wildcard interposer/account/*.c) interposer/base/identity.c
$(INTERPOSER_TEST_BUILD)/robbed: private EXTRA := $(INTERPOSER_ACCOUNT) -Wl,--wrap=vgpu_ledger_lock,--wrap=vgpu_ledger_unlock
$(INTERPOSER_TEST_BUILD)/robbed: $(INTERPOSER_ACCOUNT)
# They try the arithmetic of the compute share, which the library keeps to itself.
INTERPOSER_PURE := $(wildcard interposer/time/*.c)
INTERPOSER_VIRTUAL := $(addprefix $(INTERPOSER_TEST)/,virtual_gpu.c virtual_job.c)
$(addprefix $(INTERPOSER_TEST_BUILD)/,controller controlled_turns decided metered): private EXTRA := $(INTERPOSER_PURE)
$(addprefix $(INTERPOSER_TEST_BUILD)/,controlled counted): private EXTRA := $(INTERPOSER_PURE) $(INTERPOSER_VIRTUAL)
$(addprefix $(INTERPOSER_TEST_BUILD)/,controller controlled controlled_turns counted decided metered): $(INTERPOSER_PURE)
$(addprefix $(INTERPOSER_TEST_BUILD)/,controlled counted): $(INTERPOSER_VIRTUAL) $(INTERPOSER_VIRTUAL:.c=.h)
INTERPOSER_TIME := interposer/admission/credit.c $(INTERPOSER_PURE)
$(INTERPOSER_TEST_BUILD)/timed: private EXTRA := $(INTERPOSER_TIME)
$(INTERPOSER_TEST_BUILD)/timed: $(INTERPOSER_TIME)
# All that a launch passes, without the wrappers, and the clock and the waits are the test's own.
INTERPOSER_HOSTED := $(INTERPOSER_PURE) $(wildcard interposer/admission/*.c interposer/streams/*.c) interposer/driver/capture.c \
	$(addprefix interposer/gate/,batch.c gate.c keeper.c)
INTERPOSER_VIRTUAL_HOST := $(addprefix $(INTERPOSER_TEST)/,virtual_driver.c virtual_host.c virtual_slices.c)
INTERPOSER_TEST_HOSTED := $(addprefix $(INTERPOSER_TEST_BUILD)/,hosted hosted_launches hosted_others)
$(INTERPOSER_TEST_HOSTED): private EXTRA := $(INTERPOSER_HOSTED) $(INTERPOSER_VIRTUAL_HOST) -Wl,--wrap=clock_gettime,--wrap=syscall
$(INTERPOSER_TEST_HOSTED): $(INTERPOSER_HOSTED) $(INTERPOSER_VIRTUAL_HOST)
# What these ask of other parts is the test's own.
$(INTERPOSER_TEST_BUILD)/grown: private EXTRA := interposer/context/growth.c
$(INTERPOSER_TEST_BUILD)/grown: interposer/context/growth.c
INTERPOSER_SMALL := $(addprefix interposer/,gate/copies.c driver/report.c base/table.c)
$(INTERPOSER_TEST_BUILD)/parts: private EXTRA := $(INTERPOSER_SMALL) -Wl,--wrap=mmap
$(INTERPOSER_TEST_BUILD)/parts: $(INTERPOSER_SMALL)
# The arithmetic alone, without a ledger.
$(INTERPOSER_TEST_BUILD)/marks: private EXTRA := interposer/time/marks.c

# Linked with neither library, so that they come when the program says.
INTERPOSER_TEST_UNLINKED := $(addprefix $(INTERPOSER_TEST_BUILD)/,unloaded posing started)
$(INTERPOSER_TEST_UNLINKED): $(INTERPOSER_TEST_BUILD)/%: $(INTERPOSER_TEST)/%.c
	@mkdir -p $(@D)
	$(CC) $(INTERPOSER_TEST_CFLAGS) $< -o $@ -ldl

$(INTERPOSER_TEST_BUILD)/posing: | $(INTERPOSER_TEST_BUILD)/poser.so $(INTERPOSER_TEST_BUILD)/empty.so
$(INTERPOSER_TEST_BUILD)/poser.so: $(INTERPOSER_TEST)/poser.c
	@mkdir -p $(@D)
	$(CC) $(INTERPOSER_TEST_CFLAGS) -shared -fPIC $< -o $@ -ldl
# The driver's name, and nothing in it.
$(INTERPOSER_TEST_BUILD)/empty.so:
	@mkdir -p $(@D)
	$(CC) -shared -fPIC -nostdlib -Wl,-soname,libcuda.so.1 -x c /dev/null -o $@

$(INTERPOSER_TEST_BUILD)/named.so: private HASH := gnu
$(INTERPOSER_TEST_BUILD)/named_sysv.so: private HASH := sysv
$(INTERPOSER_TEST_BUILD)/named.so $(INTERPOSER_TEST_BUILD)/named_sysv.so: $(INTERPOSER_TEST)/named.c
	@mkdir -p $(@D)
	$(CC) $(INTERPOSER_TEST_CFLAGS) -shared -fPIC -Wl,--hash-style=$(HASH) $< -o $@

# One makes a context while it is loaded, the other looks names up.
$(INTERPOSER_TEST_BUILD)/constructor.so $(INTERPOSER_TEST_BUILD)/asking.so: $(INTERPOSER_TEST_BUILD)/%.so: $(INTERPOSER_TEST)/%.c $(INTERPOSER_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(INTERPOSER_TEST_CFLAGS) -shared -fPIC $< -o $@

.PHONY: build-test-interposer test-interposer test-interposer-sanitize fuzz-interposer kill-rounds bench-interposer

build-test-interposer: $(INTERPOSER_TEST_LIBRARY) $(BUILD)/sim/nvidia-smi $(BUILD)/sim/vgpu-fill \
		$(INTERPOSER_TEST_PROGRAMS:%=$(INTERPOSER_TEST_BUILD)/%) $(INTERPOSER_TEST_UNLINKED) $(INTERPOSER_TEST_BUILD)/constructor.so \
		$(addprefix $(INTERPOSER_TEST_BUILD)/,asking.so named.so named_sysv.so)

test-interposer: build-test-interposer
	VGPU_TEST_SIM=$(abspath $(BUILD)/sim) $(INTERPOSER_TEST)/run.sh $(INTERPOSER_TEST_BUILD) $(abspath $(INTERPOSER_TEST_LIBRARY))

bench-interposer: $(INTERPOSER_TEST_LIBRARY) $(INTERPOSER_TEST_BUILD)/bench $(INTERPOSER_TEST_BUILD)/bench_launch
	for program in bench bench_launch; do \
		VGPU_TEST_SIM=$(abspath $(BUILD)/sim) LD_PRELOAD=$(abspath $(INTERPOSER_TEST_LIBRARY)) \
			$(INTERPOSER_TEST_BUILD)/$$program || exit 1; \
	done

comma_ := ,
# A sanitizer wants to be loaded first, so here the library is part of the program: its functions
# come first all the same. Its dlsym stays out, which the sanitizers themselves would run into.
INTERPOSER_SANITIZED := memory pools inflight graphs handles processes ledger hostile views devices nvml arrays growth kernels contexts sharing \
	frees small starts racing announced asked engines multicast interop exports foreign_pools shares fills copies waits marks held returns questions passes streams pace
# Holders of the simulated driver's lock that end with it are what TSan takes for a mistake.
INTERPOSER_SANITIZED_BY_ASAN_ALONE := killed threads controller controlled controlled_turns counted decided metered $(INTERPOSER_FUZZERS)
INTERPOSER_C_SOURCES := $(filter-out interposer/route/scope.c,$(filter %.c,$(INTERPOSER_SOURCES)))

define interposer_sanitized
$(INTERPOSER_TEST_BUILD)/$(1)/library/%.o: interposer/%.c $(INTERPOSER_HEADERS)
	@mkdir -p $$(@D)
	$(CC) $(INTERPOSER_TEST_CFLAGS) -fno-omit-frame-pointer -fsanitize=$(2) -DVGPU_TEST_OWNER -DVGPU_TEST_LOCKS -c $$< -o $$@
$(INTERPOSER_TEST_BUILD)/$(1)/support/%.o: $(INTERPOSER_TEST)/%.c $(INTERPOSER_TEST_HEADERS)
	@mkdir -p $$(@D)
	$(CC) $(INTERPOSER_TEST_CFLAGS) -fno-omit-frame-pointer -fsanitize=$(2) -DVGPU_TEST_OWNER -DVGPU_TEST_LOCKS -c $$< -o $$@
INTERPOSER_OBJECTS_$(1) := $(INTERPOSER_C_SOURCES:interposer/%.c=$(INTERPOSER_TEST_BUILD)/$(1)/library/%.o) \
	$(INTERPOSER_TEST_SUPPORT:$(INTERPOSER_TEST)/%.c=$(INTERPOSER_TEST_BUILD)/$(1)/support/%.o) interposer/cuda/free_launch.S
$(INTERPOSER_TEST_BUILD)/$(1)/%: $(INTERPOSER_TEST)/%.c $$(INTERPOSER_OBJECTS_$(1)) $(INTERPOSER_TEST_HEADERS) $(INTERPOSER_SIM)
	@mkdir -p $$(@D)
	$(CC) $(INTERPOSER_TEST_CFLAGS) -fno-omit-frame-pointer -fsanitize=$(2) -DVGPU_TEST_OWNER -DVGPU_TEST_LOCKS $$< \
		$$(INTERPOSER_OBJECTS_$(1)) $$(EXTRA) -o $$@ $(INTERPOSER_SIM_LINK)
$(INTERPOSER_TEST_BUILD)/$(1)/controlled $(INTERPOSER_TEST_BUILD)/$(1)/counted: private EXTRA := $(INTERPOSER_VIRTUAL)
$(INTERPOSER_TEST_BUILD)/$(1)/controlled $(INTERPOSER_TEST_BUILD)/$(1)/counted: $(INTERPOSER_VIRTUAL) $(INTERPOSER_VIRTUAL:.c=.h)
endef
$(eval $(call interposer_sanitized,asan,address$(comma_)undefined -fno-sanitize-recover=all))
$(eval $(call interposer_sanitized,tsan,thread))

# A thousand rounds of killing of each kind, where make test has fifty.
kill-rounds: $(INTERPOSER_TEST_LIBRARY) $(INTERPOSER_TEST_BUILD)/killed
	VGPU_TEST_SIM=$(abspath $(BUILD)/sim) VGPU_KILL_ROUNDS=$${VGPU_KILL_ROUNDS:-1000} \
		LD_PRELOAD=$(abspath $(INTERPOSER_TEST_LIBRARY)) $(INTERPOSER_TEST_BUILD)/killed

# How long each fuzzer runs in make fuzz.
FUZZ_SECONDS ?= 120

fuzz-interposer: $(INTERPOSER_FUZZERS:%=$(INTERPOSER_TEST_BUILD)/asan/%)
	@for fuzzer in $^; do echo "# $$fuzzer"; \
		VGPU_TEST_SIM=$(abspath $(BUILD)/sim) VGPU_FUZZ_SECONDS=$(FUZZ_SECONDS) \
		ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 $$fuzzer || exit 1; done

test-interposer-sanitize: $(foreach s,asan tsan,$(INTERPOSER_SANITIZED:%=$(INTERPOSER_TEST_BUILD)/$(s)/%)) \
		$(INTERPOSER_SANITIZED_BY_ASAN_ALONE:%=$(INTERPOSER_TEST_BUILD)/asan/%) $(BUILD)/sim/nvidia-smi \
		$(INTERPOSER_TEST_BUILD)/constructor.so
	VGPU_TEST_SIM=$(abspath $(BUILD)/sim) ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 \
		$(INTERPOSER_TEST)/run.sh $(INTERPOSER_TEST_BUILD)/asan
	VGPU_TEST_SIM=$(abspath $(BUILD)/sim) TSAN_OPTIONS=halt_on_error=1 \
		$(INTERPOSER_TEST)/run.sh $(INTERPOSER_TEST_BUILD)/tsan
