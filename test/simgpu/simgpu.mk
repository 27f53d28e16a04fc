# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# The simulated GPU: $(BUILD)/sim/{libcuda.so.1,libnvidia-ml.so.1,nvidia-smi,vgpu-fill,vgpu-busy,vgpu-cheat,simgpu-control} and its tests.

SIMGPU := test/simgpu
SIMGPU_OBJ := $(BUILD)/obj/simgpu
SIMGPU_CFLAGS := -std=gnu11 -Wall -Wextra -Werror -O2 -g -fPIC -fvisibility=hidden -pthread \
	-I$(SIMGPU) -Iinterposer
SIMGPU_LDFLAGS := -Wl,-z,defs -Wl,-Bsymbolic -Wl,-z,relro -Wl,-z,now

SIMGPU_SHARED := conf state memory limits gputime control
SIMGPU_CUDA := $(notdir $(basename $(wildcard $(SIMGPU)/drv_*.c))) exports_cuda $(SIMGPU_SHARED)
SIMGPU_NVML := $(notdir $(basename $(wildcard $(SIMGPU)/nvml_*.c))) exports_nvml $(SIMGPU_SHARED)

# Everything depends on every header and table: it is small, and a stale row is worse.
SIMGPU_HEADERS := $(wildcard $(SIMGPU)/*.h $(SIMGPU)/*.def interposer/api/*.def interposer/api/*_types.h)

$(SIMGPU_OBJ)/%.o: $(SIMGPU)/%.c $(SIMGPU_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIMGPU_CFLAGS) -c -o $@ $<

# The rename keeps a running program's library whole.
$(BUILD)/sim/libcuda.so.1: $(SIMGPU_CUDA:%=$(SIMGPU_OBJ)/%.o) $(SIMGPU)/libcuda.map
	@mkdir -p $(@D)
	$(CC) -shared -pthread $(SIMGPU_LDFLAGS) -Wl,-soname,libcuda.so.1 \
		-Wl,--version-script=$(SIMGPU)/libcuda.map -o $@.new $(filter %.o,$^) -ldl
	@mv -f $@.new $@

$(BUILD)/sim/libnvidia-ml.so.1: $(SIMGPU_NVML:%=$(SIMGPU_OBJ)/%.o) $(SIMGPU)/libnvidia-ml.map
	@mkdir -p $(@D)
	$(CC) -shared -pthread $(SIMGPU_LDFLAGS) -Wl,-soname,libnvidia-ml.so.1 \
		-Wl,--version-script=$(SIMGPU)/libnvidia-ml.map -o $@.new $(filter %.o,$^) -ldl
	@mv -f $@.new $@

$(BUILD)/sim/libnvidia-opencl.so.1: $(SIMGPU_OBJ)/opencl.o
	@mkdir -p $(@D)
	$(CC) -shared $(SIMGPU_LDFLAGS) -Wl,-soname,libnvidia-opencl.so.1 -o $@.new $<
	@mv -f $@.new $@

# DT_RPATH, not RUNPATH: the library beside the program wins over LD_LIBRARY_PATH, so a program in
# a simulated node's folder never meets the machine's real driver by accident.
$(BUILD)/sim/nvidia-smi: $(SIMGPU_OBJ)/nvidia-smi.o $(SIMGPU_OBJ)/smi_nvml.o
	@mkdir -p $(@D)
	$(CC) -pie -Wl,-rpath,'$$ORIGIN' -Wl,--disable-new-dtags -o $@.new $^ -ldl
	@mv -f $@.new $@

$(BUILD)/sim/vgpu-fill: $(SIMGPU_OBJ)/vgpu-fill.o $(SIMGPU_OBJ)/fill_driver.o
$(BUILD)/sim/vgpu-busy: $(SIMGPU_OBJ)/vgpu-busy.o
# One that is vgpu-busy besides.
$(SIMGPU_OBJ)/cheat-busy.o: $(SIMGPU)/vgpu-busy.c $(SIMGPU_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIMGPU_CFLAGS) -Dmain=busy_main -c -o $@ $<
$(BUILD)/sim/vgpu-cheat: $(addprefix $(SIMGPU_OBJ)/,vgpu-cheat.o cheat_raw.o cheat-busy.o $(SIMGPU_SHARED:%=%.o))
$(BUILD)/sim/vgpu-busy $(BUILD)/sim/vgpu-cheat: $(SIMGPU_OBJ)/board.o
$(BUILD)/sim/vgpu-fill $(BUILD)/sim/vgpu-busy $(BUILD)/sim/vgpu-cheat: $(SIMGPU_OBJ)/driver_symbols.o $(SIMGPU_OBJ)/option.o
	@mkdir -p $(@D)
	$(CC) -pie -pthread -Wl,-rpath,'$$ORIGIN' -Wl,--disable-new-dtags -o $@.new $^ -ldl
	@mv -f $@.new $@

SIMGPU_BUILT := $(addprefix $(BUILD)/sim/,libcuda.so.1 libnvidia-ml.so.1 libnvidia-opencl.so.1 nvidia-smi vgpu-fill vgpu-busy vgpu-cheat simgpu-control)

$(BUILD)/sim/simgpu-init: $(SIMGPU)/simgpu-init
	@mkdir -p $(@D)
	install -m 755 $< $@

# Without the C library, so that all its threads can be given their priority at once.
$(BUILD)/sim/simgpu-control: FORCE
	@mkdir -p $(@D)
	CGO_ENABLED=0 $(GOBUILD) -o $@ ./$(SIMGPU)/control

# Whoever has the programs wants to prepare a node for them.
$(BUILD)/sim/nvidia-smi: | $(BUILD)/sim/simgpu-init

SIMGPU_TESTS := $(patsubst $(SIMGPU)/tests/%.c,$(SIMGPU_OBJ)/tests/%.o,$(wildcard $(SIMGPU)/tests/*.c))
$(SIMGPU_TESTS): $(SIMGPU)/tests/harness.h

$(BUILD)/test/simgpu-test: $(SIMGPU_TESTS) $(BUILD)/sim/libcuda.so.1 $(BUILD)/sim/libnvidia-ml.so.1 | $(BUILD)/sim/simgpu-control
	@mkdir -p $(@D)
	$(CC) -pie -pthread -Wl,-rpath,'$$ORIGIN/../sim' -o $@ $^ -ldl

.PHONY: test-simgpu
test-simgpu: $(SIMGPU_BUILT) $(BUILD)/test/simgpu-test ## tests of the simulated driver
	$(BUILD)/test/simgpu-test
	$(SIMGPU)/tests/programs.sh $(BUILD)/sim
