-- SPDX-FileCopyrightText: The slurm-vgpu authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Who may have --vgpu-priority=latency, by what cluster.lua says of the nodes (config.yaml: latency_qos, latency_partitions). The node
-- decides; this says it at submission, as far as it is known there. vgpu.lua loads this file.

local priority = {}

local function has(list, name)
	for _, known in ipairs(list) do
		if known == "*" or known == name then return true end
	end
	return false
end

-- Slurm keeps names of QOS in lower case.
local function has_qos(list, qos)
	for _, known in ipairs(list) do
		if known == "*" or qos and known:lower() == qos:lower() then return true end
	end
	return false
end

-- Slurm may start a job in any of the partitions that it names.
local function has_each(list, partitions)
	for name in partitions:gmatch("[^,]+") do
		if not has(list, name) then return false end
	end
	return true
end

local function named(text) return type(text) == "string" and text ~= "" and text or nil end

-- Whether a job may. What it does not name, Slurm chooses for it, and is not known here.
local function may(latency, qos, partitions)
	if has_qos(latency.qos, qos) or not qos and #latency.qos > 0 then return true end
	if partitions then return has_each(latency.partitions, partitions) end
	return #latency.partitions > 0
end

local function words(latency)
	local who = {}
	if #latency.qos > 0 then who[#who + 1] = "QOS " .. table.concat(latency.qos, ", ") end
	if #latency.partitions > 0 then who[#who + 1] = "partition " .. table.concat(latency.partitions, ", ") end
	return table.concat(who, " and ")
end

-- Refuses what each node would. latency is the table's; nil: it says nothing, as one of an older release. cores: of the job.
function priority.check(job_desc, latency, cores, option, parse)
	local qos, partitions = named(job_desc.qos), named(job_desc.partition)
	parse.bound(partitions or "", "--partition")
	if latency and not may(latency, qos, partitions) then
		if words(latency) == "" then parse.refuse("%s: this site gives it to no QOS and no partition (latency_qos, latency_partitions)", option) end
		parse.refuse("%s: it is for %s, and the job is of QOS %s in partition %s", option, words(latency), parse.shorten(qos or "(default)"), parse.shorten(partitions or "(default)"))
	end
	if cores == 0 then parse.refuse("%s: give --vgpu-cores as well, the share at which its credit comes", option) end
end

return priority
