-- SPDX-FileCopyrightText: The slurm-vgpu authors
-- SPDX-License-Identifier: Apache-2.0
--
-- /etc/slurm-vgpu/cluster.lua on the controller: what the nodes have, for vgpu.lua. One row for each
-- kind of node; `vgpu-gres cluster.lua` prints the row of the node on which it runs.
return {
	slices_per_gpu = 10,
	latency = { qos = {}, partitions = {} }, -- nobody has --vgpu-priority=latency; or qos = { "rt" }
	gres_gpu = false, -- no node has any: a job that asks for --gpus is refused with what to write instead
	sizes = {
		["half"] = { mem_percent = 50, cores = 50 },
		["quarter"] = { mem_percent = 25, cores = 25 },
		["small"] = { mem_mib = 8192 },
	},
	nodes = {
		{ names = "n[1-4]", gpus = 8, mem_mib = 143771, type = "h200" },
	},
}
