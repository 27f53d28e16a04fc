# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Tests and measurements on a real GPU, without Slurm. Root, a CUDA toolkit, python3; frameworks that
# are not installed are reported as such.

.PHONY: test-gpu bench-gpu

test-gpu: $(BUILD)/libslurm-vgpu.so ## where each path and framework meets its limit, on a real GPU
	@VGPU_GPU_BUILD=$(abspath $(BUILD))/gpu test/gpu/run.sh --library $(abspath $(BUILD))/libslurm-vgpu.so $(GPUFLAGS)

bench-gpu: $(BUILD)/libslurm-vgpu.so ## what the interposer costs on a real GPU
	@VGPU_GPU_BUILD=$(abspath $(BUILD))/gpu test/gpu/bench.sh --library $(abspath $(BUILD))/libslurm-vgpu.so $(GPUFLAGS)
