-- SPDX-FileCopyrightText: The slurm-vgpu authors
-- SPDX-License-Identifier: Apache-2.0
--
-- job_submit.lua for a site that has no other. It stands beside slurm.conf, which says
-- JobSubmitPlugins=lua. A site with a script of its own copies these lines into it; vgpu.lua says how.

local vgpu = dofile("/usr/share/slurm-vgpu/vgpu.lua")
vgpu.cluster_file = "/etc/slurm-vgpu/cluster.lua" -- printed by vgpu-gres; missing: no sizes are checked
vgpu.whole_gpus = nil -- true: --gpus, --gres=gpu:N and the like are GPUs that slurm-vgpu places; "refuse": there are none; nil: as cluster.lua says
vgpu.shards = nil -- nil: Slurm picks the GPUs by shards where cluster.lua says so; true, false, or a function of the job

function slurm_job_submit(job_desc, part_list, submit_uid)
	return vgpu.job_submit(job_desc, part_list, submit_uid)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
	return vgpu.job_modify(job_desc, job_rec, part_list, modify_uid)
end

return slurm.SUCCESS
