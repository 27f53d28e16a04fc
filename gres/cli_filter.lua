-- SPDX-FileCopyrightText: The slurm-vgpu authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Optional comfort on login nodes, beside slurm.conf, which says CliFilterPlugins=lua: a misspelt
-- --gres is refused before it is sent, as job_submit.lua does, and srun takes sizes.

local vgpu = dofile("/usr/share/slurm-vgpu/vgpu.lua")
vgpu.cluster_file = "/etc/slurm-vgpu/cluster.lua" -- a copy of the controller's; missing: srun takes no sizes

function slurm_cli_setup_defaults(options, early_pass)
	return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, pack_offset)
	return vgpu.cli_filter(options)
end

function slurm_cli_post_submit(offset, job_id, step_id)
	return slurm.SUCCESS
end

return slurm.SUCCESS
