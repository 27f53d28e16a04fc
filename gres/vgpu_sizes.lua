-- SPDX-FileCopyrightText: The slurm-vgpu authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Slices to which the site gave a name (config.yaml: sizes): vgpu:half:2 becomes vgpu:2 with the memory and time of two halves, as if
-- gpumem and gpucores had been typed. From there on nothing knows of sizes. vgpu.lua loads this file.

local sizes = {}

-- The names of a table's sizes, in their order.
local function names(known)
	local list = {}
	for name in pairs(known) do list[#list + 1] = name end
	table.sort(list)
	return table.concat(list, ", ")
end

-- The size that is asked for. Without any, a name can only be meant as a type of GPU.
local function find(got, tab, table_of, parse)
	local known, name, typed = tab and tab.sizes or {}, got.size, got.typed.vgpu
	if known[name] then return known[name] end
	local list = names(known)
	if list == "" or table_of.has_type(tab, name) then
		parse.refuse("%s: vgpu has no types: use --gres=vgpu:%d --vgpu-gpu=%s", typed, got.vgpu, parse.shorten(name))
	end
	parse.refuse("%s: there is no size %s: the sizes are %s", typed, parse.shorten(name), list)
end

-- Writes a size as the job's totals. A share is of the largest GPU that the job may come to, since a node is not told that it was one.
function sizes.settle(got, request, name, tab, rows, table_of, parse)
	local size, n = find(got, tab, table_of, parse), got.vgpu
	local each = { mem = size.mem_mib or size.mem_percent and table_of.share(rows, size.mem_percent), cores = size.cores }
	for _, both in ipairs({ { "mem", "gpumem" }, { "cores", "gpucores" } }) do
		local key, gres = both[1], both[2]
		if each[key] and (got[gres] or request[key] ~= nil) then
			parse.refuse("%s and %s: the size says this already: give one of the two", got.typed.vgpu, got.typed[gres] or name(key))
		end
		if each[key] then got[gres], got.typed[gres] = n * each[key], got.typed.vgpu end
	end
end

-- The --gres of an srun with a size in numbers, by which Slurm checks the step as well; spank has the options of plugins.
function sizes.of_srun(got, spank, tab, table_of, parse)
	if not tab then
		parse.refuse("%s: this host has no table of sizes for srun: use sbatch or salloc, or --vgpu-mem and --vgpu-cores", got.typed.vgpu)
	end
	local request = {}
	for option, value in pairs(spank and spank["vgpu"] or {}) do
		if value ~= "unset" then request[option:gsub("^vgpu%-", "")] = tostring(value) end
	end
	local filter = request.gpu and parse.readers.types(request.gpu:sub(1, parse.max_bytes))
	local _, rows = table_of.groups(tab.nodes, filter)
	if #rows == 0 then rows = tab.nodes end -- job_submit says what is wrong with the filter
	sizes.settle(got, request, function(key) return "--vgpu-" .. key .. "=" .. parse.shorten(request[key]) end, tab, rows, table_of, parse)
	local parts = {}
	for i, item in ipairs(got.items) do
		parts[i] = item.text
		if item.name == "vgpu" then
			parts[i] = string.format("vgpu:%d", got.vgpu)
			for _, gres in ipairs({ "gpumem", "gpucores" }) do
				if got.typed[gres] == got.typed.vgpu then parts[i] = string.format("%s,%s:%d", parts[i], gres, got[gres]) end
			end
		end
	end
	return table.concat(parts, ",")
end

return sizes
