-- SPDX-FileCopyrightText: The slurm-vgpu authors
-- SPDX-License-Identifier: Apache-2.0
--
-- The cluster's own submission script, beside slurm.conf on the controller. It has slurm-vgpu check
-- and complete what a job asks for, and then adds a rule of the site.

local vgpu = dofile("/usr/share/slurm-vgpu/vgpu.lua")
vgpu.cluster_file = "/etc/slurm-vgpu/cluster.lua"

-- A job without slices has no GPU here (device_files: closed in config.yaml), so that its user forgot to ask. All nodes of
-- this cluster have GPUs, so such jobs are not taken.
local function require_slices(job_desc)
	if tostring(job_desc.gres or ""):find("vgpu", 1, true) then return slurm.SUCCESS end
	slurm.log_user("%s", "this cluster is for GPU jobs: say how many slices, as in --gres=vgpu:1")
	return slurm.ERROR
end

function slurm_job_submit(job_desc, part_list, submit_uid)
	local rc = vgpu.job_submit(job_desc, part_list, submit_uid)
	if rc ~= slurm.SUCCESS then return rc end
	return require_slices(job_desc)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
	return vgpu.job_modify(job_desc, job_rec, part_list, modify_uid)
end

return slurm.SUCCESS
