# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Tests and measurements on a real GPU, without Slurm. Root, a CUDA toolkit, python3; frameworks that
# are not installed are reported as such.

.PHONY: test-gpu test-gpu-views test-gpu-cudart test-gpu-guard bench-gpu bench-gpu-time test-gpu-kept

test-gpu: $(BUILD)/libslurm-vgpu.so ## where each path and framework meets its limit, on a real GPU
	@VGPU_GPU_BUILD=$(abspath $(BUILD))/gpu test/gpu/run.sh --library $(abspath $(BUILD))/libslurm-vgpu.so $(GPUFLAGS)

test-gpu-views: $(BUILD)/libslurm-vgpu.so ## whether nvidia-smi, nvtop and gpustat tell the same of a slice
	@VGPU_GPU_BUILD=$(abspath $(BUILD))/gpu test/gpu/views.sh --library $(abspath $(BUILD))/libslurm-vgpu.so $(GPUFLAGS)

# CUDART is a folder of programs that test/gpu/cudart/build.sh has linked.
test-gpu-cudart: $(BUILD)/libslurm-vgpu.so ## where programs of older CUDA runtimes meet their limit, on a real GPU
	@VGPU_GPU_BUILD=$(abspath $(BUILD))/gpu test/gpu/cudart.sh --library $(abspath $(BUILD))/libslurm-vgpu.so \
		--programs $(or $(CUDART),$(BUILD)/gpu/cudart) $(GPUFLAGS)

# GUARDFLAGS="--only other"; for that, test/gpu/other.sh $(BUILD)/gpu/other builds programs of other interfaces, where their headers are.
test-gpu-guard: $(BUILD)/libslurm-vgpu.so $(GUARDS) ## what works behind the guards, and that it is limited, on a real GPU
	@test/gpu/guard.sh --build $(BUILD) $(GUARDFLAGS)

bench-gpu: $(BUILD)/libslurm-vgpu.so ## what the interposer costs on a real GPU
	@VGPU_GPU_BUILD=$(abspath $(BUILD))/gpu test/gpu/bench.sh --library $(abspath $(BUILD))/libslurm-vgpu.so $(GPUFLAGS)

# A GPU machine may have no Go. TIMEFLAGS="smoke follow"; --help lists the parts.
$(BUILD)/gpu/outside $(BUILD)/gpu/kept: FORCE
	@mkdir -p $(@D)
	$(GOBUILD) -o $@ ./test/gpu/$(@F)

bench-gpu-time: $(BUILD)/gpu/outside ## what root can do with a GPU's own scheduler: decision 053 again
	@VGPU_GPU_BUILD=$(abspath $(BUILD))/gpu test/gpu/time.sh $(or $(TIMEFLAGS),--help)

# KEPTFLAGS="smoke weights:1/3"; --help lists the parts, --simulated needs no GPU.
test-gpu-kept: build $(BUILD)/gpu/outside $(BUILD)/gpu/kept ## what vgpud keeps on a GPU, through Slurm
	@test/gpu/kept.sh $(or $(KEPTFLAGS),--help)
