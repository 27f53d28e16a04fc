-- SPDX-FileCopyrightText: The slurm-vgpu authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Nodes on which Slurm picks the GPU of each slice, by gres/shard (config.yaml: shards): a job with a slice also counts
-- shards, which Slurm takes from one GPU. vgpu.lua loads this file.

local shards = {}

-- Whether a job can have to do with any of this. Most have not, and cost no look into the table.
function shards.concern(job)
	return job.gres or job.tres_per_job or job.tres_per_socket or job.tres_per_task or job.spank_job_env
end

-- The shards of a row of cluster.lua: one for each MiB that may be granted on a GPU.
local function of_gpu(row) return row.shards or row.mem_mib end

-- The rows that a job can come to: of nodes with shards, or of those without, where the table has both.
function shards.rows(tab, on)
	local left = {}
	for _, row in ipairs(tab.nodes) do
		if (row.shards ~= nil) == on then left[#left + 1] = row end
	end
	return #left > 0 and left or tab.nodes
end

-- Whether any row of the table is of nodes with shards.
function shards.any(tab)
	for _, row in ipairs(tab and tab.nodes or {}) do
		if row.shards then return true end
	end
	return false
end

-- The shards of a slice: its memory, and at least such a part of a GPU as it may have of the time. So shares of one GPU
-- never come to more than 100 %, and 100 % is a GPU to oneself. What is left of a shard is dropped, so that two halves have room
-- where the shards of a GPU are odd.
function shards.of_slice(mem_mib, cores, rows)
	local largest = 0
	for _, row in ipairs(rows) do largest = math.max(largest, of_gpu(row)) end
	return math.max(mem_mib, math.floor(largest * cores / 100))
end

-- Whether each GPU of a node can hold that many, since Slurm takes any of them.
function shards.fit(group, n)
	for _, row in ipairs(group.rows) do
		if of_gpu(row) < n then return false end
	end
	return #group.rows == group.kinds
end

-- The job as it will be, as far as what is changed are texts.
function shards.changed(job_desc, job_rec)
	return setmetatable({}, { __index = function(_, key)
		local new = job_desc[key]
		if type(new) == "string" then return new end
		return job_rec[key]
	end })
end

-- Why a job with slices cannot go where Slurm picks GPUs otherwise: nodes with shards refuse what has none, and nodes without never
-- have those that Slurm goes on counting (seen on 24.11.5).
function shards.moved(job_desc, has, on)
	return string.format("Partition=%s: the job has %s, which is counted %s shards there and %s them here: submit the job anew",
		tostring(job_desc.partition), has, on and "with" or "without", on and "without" or "with")
end

-- The shards that a step's --gres must name too: they open the device to it. Nil: none, or it is not known how many.
function shards.of_step(got, of_job)
	if got.typed.shard then return nil end
	return got.gpumem or tonumber(of_job or "")
end

return shards
