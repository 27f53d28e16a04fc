-- SPDX-FileCopyrightText: The slurm-vgpu authors
-- SPDX-License-Identifier: Apache-2.0
--
-- The table of nodes that vgpu-gres prints (cluster.lua), and questions about it. vgpu.lua loads this file.

local table_of = {}

local function is(number, most) return type(number) == "number" and number > 0 and number <= most end

-- Why the sizes of a table are none; nil if they are. "A type's name" would be read in two ways.
local function wrong_sizes(got)
	if got.sizes ~= nil and type(got.sizes) ~= "table" then return "sizes is no table" end
	for name, size in pairs(got.sizes or {}) do
		local known = { mem_mib = 2 ^ 34, mem_percent = 100, cores = 100 }
		if type(name) ~= "string" or not name:find("^%l[%l%d-]*$") or type(size) ~= "table" then
			return string.format("sizes[%q] is no size with a name of small letters", tostring(name))
		end
		for key, value in pairs(size) do
			local whole = key == "mem_percent" or type(value) == "number" and value % 1 == 0
			if not known[key] or not whole or not is(value, known[key]) and not (key == "cores" and value == 0) then
				return string.format("sizes[%q].%s is not mem_mib, mem_percent or cores, or not within their bounds", name, tostring(key))
			end
		end
		for _, node in ipairs(got.nodes) do
			if node.type:lower() == name then return string.format("sizes[%q]: a type of GPU is called so", name) end
		end
	end
end

-- Reads the table without running anything but it; nil and why if it is none.
function table_of.load(text)
	if text:byte(1) == 27 then return nil, "it is bytecode" end
	local chunk, err
	if setfenv then -- Lua 5.1
		chunk, err = loadstring(text, "=cluster.lua")
		if chunk then setfenv(chunk, {}) end
	else
		chunk, err = load(text, "=cluster.lua", "t", {})
	end
	if not chunk then return nil, err end
	local ok, got = pcall(chunk)
	if not ok then return nil, tostring(got) end
	if type(got) ~= "table" or type(got.nodes) ~= "table" or #got.nodes == 0 then return nil, "it returns no table with nodes" end
	local latency = got.latency
	for _, key in ipairs(latency ~= nil and { "qos", "partitions" } or {}) do
		if type(latency) ~= "table" or type(latency[key]) ~= "table" then return nil, "latency has no list " .. key end
		for i, name in ipairs(latency[key]) do
			if type(name) ~= "string" then return nil, string.format("latency.%s[%d] is no string", key, i) end
		end
	end
	if got.gres_gpu ~= nil and got.gres_gpu ~= false then return nil, "gres_gpu is not false" end
	local slices = got.slices_per_gpu or 10
	if type(slices) ~= "number" or slices < 1 then return nil, "slices_per_gpu is no number from 1" end
	for i, node in ipairs(got.nodes) do
		for key, kind in pairs({ names = "string", gpus = "number", mem_mib = "number", type = "string" }) do
			if type(node) ~= "table" or type(node[key]) ~= kind then
				return nil, string.format("nodes[%d].%s is no %s", i, key, kind)
			end
		end
		if node.shards ~= nil and (type(node.shards) ~= "number" or node.shards < 1) then return nil, string.format("nodes[%d].shards is no number from 1", i) end
		if node.gpus < 1 or node.mem_mib < 1 then return nil, string.format("nodes[%d] has no GPU or no memory", i) end
	end
	local wrong = wrong_sizes(got)
	if wrong then return nil, wrong end
	return got
end

-- The rows that a filter admits, and the same by node names, since a node with GPUs of two kinds has two rows.
function table_of.groups(all, filter)
	local groups, by_names, rows = {}, {}, {}
	for _, row in ipairs(all) do
		local group = by_names[row.names] or { names = row.names, rows = {}, gpus = 0, kinds = 0 }
		if not by_names[row.names] then
			by_names[row.names], groups[#groups + 1] = group, group
		end
		local kind = row.type:lower()
		group.kinds = group.kinds + 1
		if not filter or not filter.no[kind] and (filter.any or filter.only[kind]) then
			group.rows[#group.rows + 1], group.gpus, rows[#rows + 1] = row, group.gpus + row.gpus, row
		end
	end
	return groups, rows
end

function table_of.types(tab)
	local types, seen = {}, {}
	for _, row in ipairs(tab.nodes) do
		if not seen[row.type] then types[#types + 1], seen[row.type] = row.type, true end
	end
	return table.concat(types, ", ")
end

-- The most of a number over rows or groups, and where it was found.
function table_of.most(list, key)
	local best
	for _, entry in ipairs(list) do
		if not best or entry[key] > best[key] then best = entry end
	end
	return best
end

-- Whether a type of GPU is in the table.
function table_of.has_type(tab, name)
	for _, row in ipairs(tab and tab.nodes or {}) do
		if row.type:lower() == name:lower() then return true end
	end
	return false
end

-- A share of the largest GPU, in MiB.
function table_of.share(rows, percent)
	return math.max(1, math.floor(percent * table_of.most(rows, "mem_mib").mem_mib / 100))
end

return table_of
