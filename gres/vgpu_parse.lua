-- SPDX-FileCopyrightText: The slurm-vgpu authors
-- SPDX-License-Identifier: Apache-2.0
--
-- The two texts in which a request reaches job_submit: GRES as users and Slurm write them, and the
-- canonical form that the SPANK plugin makes of the --vgpu options. vgpu.lua loads this file.

local parse = {}

-- The options, in the order of the canonical form: the kind of the reader, a choice's values, and whether it picks a GPU; and what MiB a
-- unit is, in a message about gpumem.
-- begin generated options: made of internal/request by make generate
parse.keys = {
	{ name = "mem", reads = "mem" },
	{ name = "cores", reads = "cores" },
	{ name = "place", reads = "choice", values = { ["pack"] = true, ["spread"] = true }, picks = true },
	{ name = "policy", reads = "choice", values = { ["cap"] = true, ["elastic"] = true } },
	{ name = "priority", reads = "choice", values = { ["latency"] = true, ["normal"] = true, ["batch"] = true } },
	{ name = "gpu", reads = "types" },
	{ name = "uuid", reads = "uuids", picks = true },
	{ name = "bind", reads = "choice", values = { ["none"] = true, ["task"] = true } },
}
local units = { m = 1, mib = 1, mb = 1, k = 1024, g = 1024, gib = 1024, gb = 1024, t = 1048576, tib = 1048576, tb = 1048576 }
-- end generated options

local max_mib = 2 ^ 34 -- the same bound as in internal/request: no node has more
local max_slices = 4096
local least_context_mib = 256 -- as in internal/request: fewer are meant as GiB, percent or parts of a GPU, as other sites count shards

-- No pattern sees a longer text of a user's: slurmctld calls this before Slurm's own bounds, with its
-- locks held. Every pattern takes time in proportion to the text; pattern_steps.lua counts.
local max_bytes = 4096

-- A user's text as it may stand in a one-line message.
local function shorten(text)
	text = tostring(text)
	local start = text:sub(1, 60):gsub("[^\33-\126]", "?")
	return #text > 60 and start .. "..." or start
end
parse.shorten = shorten

-- A refusal is raised from wherever it is found; vgpu.lua makes the user's message of it.
local function refuse(format, ...)
	error({ refusal = string.format(format, ...) }, 0)
end
parse.refuse = refuse

local ours = { vgpu = true, gpumem = true, gpucores = true }
-- … and where Slurm picks GPUs by shards. Elsewhere gres/shard is none of our business.
local with_shards = { vgpu = true, gpumem = true, gpucores = true, shard = true }

local function bound(text, option)
	if #text > max_bytes then refuse("%s: %d characters: at most %d are read", option, #text, max_bytes) end
end
parse.bound = bound

-- `gsub("%s+$", "")` would try each blank of a long run anew.
local function trim_end(text)
	local last = #text
	while text:find("^%s", last) do last = last - 1 end
	return text:sub(1, last)
end

-- Slurm up to 23.02 reads back "gres:vgpu:1", later ones "gres/vgpu:1", users type "vgpu:1".
local function split(text)
	local items = {}
	for item in text:gmatch("[^,]+") do
		item = trim_end(item:gsub("^%s*gres[:/]", ""):gsub("^%s+", ""))
		if item ~= "" then
			items[#items + 1] = { text = item, name = item:match("^[^:=]+"), value = item:match("[:=](.*)$") }
		end
	end
	return items
end

-- A list as Slurm reads it back, in the words of scontrol update.
function parse.bare(text)
	return #text <= max_bytes and (text:gsub("gres[:/]", "")) or text
end

-- The first of our GRES that a text asks for. Most jobs stop at the three searches. option is the
-- text's name in a message; shards: whether gres/shard is one of ours.
function parse.mentions(text, option, shards)
	if type(text) ~= "string" or not (text:find("vgpu", 1, true) or text:find("gpumem", 1, true) or text:find("gpucores", 1, true)
		or shards and text:find("shard", 1, true)) then
		return nil
	end
	bound(text, option)
	local known = shards and with_shards or ours
	for _, item in ipairs(split(text)) do
		if known[item.name] then return item.name end
	end
end

-- Names that are no GRES of anybody's, of which Slurm's commands say no more than that they are invalid, and do not ask job_submit.
local misspelt = { vpgu = true, gvpu = true, vgup = true, vgpus = true }

function parse.refuse_misspelt(text, option)
	if type(text) ~= "string" or #text > max_bytes then return end
	for _, item in ipairs(split(text)) do
		if misspelt[item.name] then refuse("%s=%s: there is no such GRES: did you mean vgpu:%s?", option, shorten(item.text), shorten(item.value or "1")) end
	end
end

-- Whether a text asks for none of ours: each that it names, if any, is counted 0, which Slurm leaves out.
function parse.asks_for_none(text, option)
	if not parse.mentions(text, option) then return true end
	for _, item in ipairs(split(text)) do
		if ours[item.name] and not (item.value or ""):find("^0+$") then return false end
	end
	return true
end

local function number(digits)
	local n = digits and #digits <= 11 and digits:match("^%d+$") and tonumber(digits)
	return n and n <= max_mib and n or nil
end

-- gpumem counts MiB. Slurm's own suffixes multiply the count by powers of 1024: 8K is 8192 MiB, and
-- 8G would be 8 PiB, which nobody means. A fraction is read as internal/request reads that of an option.
local function parse_mem(typed, value)
	local digits, rest = (value or ""):match("^(%d+)(.*)$")
	local fraction, suffix = (rest or "?"):match("^(%.?%d*)(%a*)$")
	local n, unit = number(digits), units[(suffix or ""):lower()]
	if n and n > 0 and fraction == "" and suffix == "" then return n end
	if n and unit and fraction ~= "." and #fraction <= 11 then
		local mib = math.floor(tonumber(digits .. fraction) * unit)
		if mib > 0 and mib <= max_mib then
			if fraction == "" and suffix:lower() == "k" then return mib end
			refuse("%s: gpumem counts MiB and takes no unit: write gpumem:%d", typed, mib)
		end
	end
	refuse("%s: want the MiB of all slices together as a number, as in gpumem:3000", typed)
end

-- A count of slices, and the name behind vgpu, which may be a size's.
local function parse_count(typed, value)
	if value == nil then return 1 end
	local name, count = value:match("^(%w[%w_.-]*)[:=](%d+)$")
	name = name or value:match("^%a[%w_.-]*$")
	local n = number(name and (count or "1") or value)
	if n and n > 0 and n <= max_slices then return n, name end
	if n == 0 then refuse("%s: that is no slice: ask for one or more, as in vgpu:1, or leave it out", typed) end
	refuse("%s: want a number of slices from 1, as in vgpu:2", typed)
end

local function parse_cores(typed, value)
	local n = number(value)
	if n then return n end
	refuse("%s: want the percent of GPU time of all slices together, as in gpucores:30", typed)
end

local function parse_shard(typed, value)
	local n = number(value)
	if n and n > 0 then return n end
	refuse("%s: a shard is one MiB here: want the MiB of the slice as a number, as in shard:3000", typed)
end

local parsers = { vgpu = parse_count, gpumem = parse_mem, gpucores = parse_cores, shard = parse_shard }

-- The counts in the GRES: {vgpu=, gpumem=, gpucores=, size=, typed={}, items={}, mem_first=}; typed is for messages. size: the name in
-- vgpu:half:1 (vgpu_sizes.lua). mem_first: gpumem stands before vgpu, which is how the node learns that it was typed (parse.render).
-- With shards, shard:3000 alone is gpumem:3000.
function parse.gres(text, option, shards)
	text = tostring(text or "")
	bound(text, option)
	local got = { typed = {}, items = split(text) }
	local known = shards and with_shards or ours
	for _, item in ipairs(got.items) do
		if known[item.name] then
			local typed = option .. "=" .. shorten(item.text)
			if got[item.name] then refuse("%s: %s is given twice", typed, item.name) end
			local name
			got[item.name], name = parsers[item.name](typed, item.value)
			got.size = got.size or name
			got.typed[item.name] = typed
			if item.name == "vgpu" then got.mem_first = got.gpumem ~= nil end
		end
	end
	if got.shard and not got.gpumem then
		if got.shard < least_context_mib then
			refuse("%s: a shard is one MiB here, and a CUDA context takes more than %d: write the MiB of the slice, as in shard:3000", got.typed.shard, got.shard)
		end
		got.gpumem, got.typed.gpumem, got.shard = got.shard, got.typed.shard, nil
	end
	return got
end

-- The text to give to Slurm: other GRES stay as and where they are. The node sees VGPU_MEM=10% as well, which is of its own
-- GPUs, but not what was typed; the order, which means nothing to Slurm, tells it to leave that default out.
function parse.render(got)
	local one, two = "vgpu", "gpumem"
	if got.mem_first then one, two = two, one end
	local own = string.format("%s:%d,%s:%d", one, got[one], two, got[two])
	if (got.gpucores or 0) > 0 then own = string.format("%s,gpucores:%d", own, got.gpucores) end
	if got.shard then own = string.format("%s,shard:%d", own, got.shard) end
	local known, parts = got.shard and with_shards or ours, {}
	for _, item in ipairs(got.items) do
		if not known[item.name] then
			parts[#parts + 1] = item.text
		elseif own then
			parts[#parts + 1], own = own, nil
		end
	end
	return table.concat(parts, ",")
end

local readers = {
	mem = function(value)
		local percent = #value <= 13 and value:match("^(%d+%.?%d*)%%$")
		local n = percent and tonumber(percent)
		if n and n > 0 and n <= 100 then return { percent = n } end
		n = number(value)
		return n and n > 0 and { mib = n } or nil
	end,
	cores = function(value)
		local n = number(value)
		return n and n <= 100 and n or nil
	end,
	types = function(value)
		local names = { only = {}, no = {}, any = true }
		for bang, name in value:gmatch("(!?)([%w_.-]+)") do
			if bang == "!" then names.no[name:lower()] = true else names.only[name:lower()], names.any = true, false end
		end
		return value:match("^[%w_.,!-]+$") and names or nil
	end,
	uuids = function(value) return value:match("^[%w,!-]+$") end,
	choice = function(value, values) return values[value] and value end,
}

parse.readers, parse.max_bytes = readers, max_bytes

local rows = {}
for _, row in ipairs(parse.keys) do rows[row.name] = row end

-- Reads "mem=3000;cores=30"; nil if anything in it is not as the plugin writes it.
local function decode(text)
	local got = { raw = {} }
	if #text > 2048 then return nil end
	for part in (text .. ";"):gmatch("(.-);") do
		local key, value = part:match("^(%l+)=(.+)$")
		local row = rows[key]
		if not row or got[key] then return nil end
		got[key], got.raw[key] = readers[row.reads](value, row.values), value
		if got[key] == nil then return nil end
	end
	return got
end

-- The request and its defaults out of job_desc.spank_job_env, a table whose keys start at 0, and
-- name(key): what to call the option in messages, with its value as the user typed it. The plugin writes each entry once. Who writes
-- thousands of them, each as long as one may be, would have slurmctld read them all with its locks held.
function parse.options(spank_job_env)
	local request, defaults, typed, seen = {}, {}, {}, {}
	for _, entry in pairs(spank_job_env or {}) do
		entry = tostring(entry)
		if entry:sub(1, 6) == "SPANK_" then entry = entry:sub(7) end -- as slurmctld keeps some
		local equals = entry:find("=", 1, true)
		local key, value = entry:sub(1, (equals or 1) - 1), entry:sub((equals or #entry) + 1)
		if key == "VGPU_REQUEST" or key == "VGPU_DEFAULTS" or key == "VGPU_TYPED" then
			if seen[key] then refuse("%s is there more than once: use the --vgpu options", key) end
			seen[key] = true
		end
		if key == "VGPU_REQUEST" and value ~= "" then
			request = decode(value)
			if not request then refuse("VGPU_REQUEST=%s: this request is malformed: use the --vgpu options", shorten(value)) end
		elseif key == "VGPU_DEFAULTS" then
			defaults = decode(value) or {} -- a default is never an error
		elseif key == "VGPU_TYPED" and #value <= max_bytes then
			for part in value:gmatch("[^;]+") do
				local option, text = part:match("^(%l+)=(.*)$")
				if option then typed[option] = text end
			end
		end
	end
	return request, defaults, function(key)
		if request[key] ~= nil then return "--vgpu-" .. key .. "=" .. shorten(typed[key] or request.raw[key]) end
		return "VGPU_" .. key:upper() .. "=" .. shorten(defaults.raw[key])
	end
end

return parse
