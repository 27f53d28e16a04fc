# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# The guards: libraries with the driver's names that a step finds in place of the driver's own. Needs a C compiler.

GUARD_CFLAGS := -std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIC -ffile-prefix-map=$(CURDIR)=. -fno-stack-protector
# In a step both lie in its folder; /dev is what containers are given whole. DT_RPATH and not RUNPATH: it comes
# before LD_LIBRARY_PATH. Whatever is asked for or not, the libraries behind stay.
GUARD_LDFLAGS := -shared -nostdlib -Wl,-z,relro -Wl,-z,nodelete -Wl,--disable-new-dtags \
	-Wl,-rpath,/run/slurm-vgpu/self:/dev/slurm-vgpu -Wl,--no-as-needed
guard_names = $(wildcard guard/names/$(1)-*.txt) guard/names/seen.txt

# In place of the libraries behind a guard, which it is linked with by their names alone.
$(BUILD)/guard/behind/%.so:
	@mkdir -p $(@D)
	$(CC) -shared -nostdlib -Wl,-soname,$*.so -x c /dev/null -o $@

# $(1): cuda or nvml; $(2): what its names begin with
define guard_lists
$(BUILD)/guard/$(1).names: $(call guard_names,$(1)) guard/guard.mk
	@mkdir -p $$(@D)
	@cat $$(filter %.txt,$$^) | grep -oE '^$(2)[A-Za-z0-9_]+' | LC_ALL=C sort -u | sed 's/.*/name &/' >$$@
$(BUILD)/guard/$(1).names.h: $(BUILD)/guard/$(1).names
	@sed 's/name \(.*\)/name(\1)/' $$< >$$@
endef
$(eval $(call guard_lists,cuda,cu[A-Z]))
$(eval $(call guard_lists,nvml,nvml[A-Z]))

# $(1): file; $(2): list; $(3): its SONAME; $(4): the driver's name behind it; $(5): library; $(6): what an absent function returns
define guard
$(BUILD)/$(1): guard/guard.S guard/guard.c $(BUILD)/guard/$(2).names $(BUILD)/guard/$(2).names.h \
		$(BUILD)/guard/behind/libslurm-vgpu.so $(BUILD)/guard/behind/$(4)
	$(CC) $(GUARD_CFLAGS) -I$(BUILD)/guard -DNAMES='"$(2).names"' -DNAMES_C='"$(2).names.h"' \
		-DLIBRARY=$(5) -DABSENT=$(6) $(GUARD_LDFLAGS) -Wl,-soname,$(3) guard/guard.S guard/guard.c \
		$(BUILD)/guard/behind/libslurm-vgpu.so $(BUILD)/guard/behind/$(4) -o $$@
endef
# CUDA_ERROR_NOT_FOUND and NVML_ERROR_FUNCTION_NOT_FOUND.
$(eval $(call guard,libcuda-guard.so,cuda,libcuda.so.1,libcuda-slurm-vgpu.so,0,500))
$(eval $(call guard,libnvidia-ml-guard.so,nvml,libnvidia-ml.so.1,libnvidia-ml-slurm-vgpu.so,1,13))
# No SONAME: it stands in many places, and ldconfig in a container goes by the file's name there then.
$(BUILD)/libslurm-vgpu-closed.so: guard/closed.c
	@mkdir -p $(@D)
	$(CC) $(GUARD_CFLAGS) -shared -Wl,-z,relro -Wl,-z,now -Wl,-z,nodelete $< -o $@
GUARDS := $(BUILD)/libcuda-guard.so $(BUILD)/libnvidia-ml-guard.so $(BUILD)/libslurm-vgpu-closed.so

# The tests: a library that believes the pages of whoever builds.
GUARD_TEST_CFLAGS := -std=gnu11 -O1 -g -Wall -Wextra -Werror -D_GNU_SOURCE -Iinterposer -Itest/gpu
$(BUILD)/test-guard/ways: test/guard/ways.c
	@mkdir -p $(@D)
	$(CC) $(GUARD_TEST_CFLAGS) $< -o $@ -ldl
$(BUILD)/test-guard/ways-static: test/guard/ways.c
	@mkdir -p $(@D)
	$(CC) $(GUARD_TEST_CFLAGS) -static $< -o $@ 2>/dev/null
# Linked with the guard as a program is in a step, where libraries are left out of which nothing is needed.
$(BUILD)/test-guard/linked: test/guard/ways.c $(BUILD)/libcuda-guard.so
	@mkdir -p $(@D)
	$(CC) $(GUARD_TEST_CFLAGS) -DLINKED $< -o $@ -Wl,--as-needed -Wl,--allow-shlib-undefined $(BUILD)/libcuda-guard.so -ldl
$(BUILD)/test-guard/mkstep: test/gpu/mkstep.c
	@mkdir -p $(@D)
	$(CC) $(GUARD_TEST_CFLAGS) $^ -o $@
$(BUILD)/test-guard/libslurm-vgpu.so: $(INTERPOSER_TEST_LIBRARY)
	@mkdir -p $(@D)
	@cp $< $@

.PHONY: test-guard
test-guard: $(GUARDS) $(BUILD)/test-guard/ways $(BUILD)/test-guard/ways-static $(BUILD)/test-guard/linked $(BUILD)/test-guard/mkstep $(BUILD)/test-guard/libslurm-vgpu.so \
		$(BUILD)/sim/libcuda.so.1 $(BUILD)/sim/libnvidia-ml.so.1 $(BUILD)/sim/libnvidia-opencl.so.1 $(BUILD)/sim/nvidia-smi $(BUILD)/sim/simgpu-control
	@test/guard/run.sh $(BUILD)
