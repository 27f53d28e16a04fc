-- SPDX-FileCopyrightText: The slurm-vgpu authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Whole GPUs beside slices: a job that asks for gres/gpu, in whatever form, also counts the memory and the time of
-- these GPUs, so that Slurm sends no slice where they are and no such job where slices are. vgpu.lua loads this file.

local whole = {}

local not_set = 65534 -- as Slurm says it of ntasks_per_tres

-- One item of a list as Slurm keeps it: "gres:gpu:h200:2", "gres/gpu=1", or as users type it, "gpu:1".
local function gpus_of(item)
	local prefix, rest = item:match("^%s*(gres[:/])(.*)$")
	if not prefix then prefix, rest = "", item:match("^%s*(.*)$") end
	local name, tail = rest:match("^(%l+)(.*)$")
	if name ~= "gpu" or tail ~= "" and not tail:find("^[:=]") then return nil end
	local kind, count = tail:match("^[:=](%a[%w_.-]*)"), tail:match("[:=](%d+)$")
	count = count and count:gsub("^0+(%d)", "%1") -- Slurm reads them
	if count and #count > 6 then return nil end -- Slurm refuses it
	return { n = tonumber(count or "1"), kind = kind, prefix = prefix, sep = tail:find("=", 1, true) and "=" or ":" }
end

-- The GPUs that a list asks for, or nil.
local function asked(text)
	if type(text) ~= "string" or #text > 4096 or not text:find("gpu", 1, true) then return nil end
	local found
	for item in text:gmatch("[^,]+") do
		local gpus = gpus_of(item)
		if gpus then
			found = found or { n = 0, kinds = {}, prefix = gpus.prefix, sep = gpus.sep }
			found.single = found.n == 0 and gpus.kind and gpus.kind:sub(1, 60) .. ":" .. gpus.n
			found.n = found.n + gpus.n
			if gpus.kind then found.kinds[gpus.kind:lower()] = true else found.any = true end
		end
	end
	return found
end
whole.asked = asked

-- The memory that a GPU has at least, of the types that are asked for; nil where no table says it.
local function smallest(tab, gpus)
	local least, of_kind
	for _, row in ipairs(tab and tab.nodes or {}) do
		local right = not gpus.any and gpus.kinds[row.type:lower()]
		if right and not of_kind then least, of_kind = nil, true end
		if (right or not of_kind) and (not least or row.mem_mib < least) then least = row.mem_mib end
	end
	return least
end

local function counts(tab, gpus)
	local mib, list = smallest(tab, gpus), ""
	if gpus.n == 0 then return nil end
	if mib then list = string.format(",%sgpumem%s%d", gpus.prefix, gpus.sep, gpus.n * mib) end
	return string.format("%s,%sgpucores%s%d", list, gpus.prefix, gpus.sep, gpus.n * 100)
end

local lists = { "gres", "tres_per_job", "tres_per_socket", "tres_per_task" }
local options = { gres = "--gres=gpu:%s", tres_per_job = "--gpus=%s", tres_per_socket = "--gpus-per-socket=%s", tres_per_task = "--gpus-per-task=%s" }

-- Refuses a list that is too long to be read: Slurm may read it.
function whole.bound(job_desc, option, bound)
	for _, key in ipairs(lists) do
		local text = job_desc[key]
		if type(text) == "string" and text:find("gpu", 1, true) then bound(text, key == "gres" and option or "TRES " .. key:match("per_%l+"):gsub("_", " ")) end
	end
end

-- The option by which the job asks for GPUs, or nil.
function whole.option(job_desc)
	for _, key in ipairs(lists) do
		local gpus = asked(job_desc[key])
		if gpus and gpus.n > 0 then return string.format(options[key], gpus.single or gpus.n) end
	end
	local per_gpu = job_desc.ntasks_per_tres
	if per_gpu and per_gpu > 0 and per_gpu < not_set then return string.format("--ntasks-per-gpu=%d", per_gpu) end
end

-- Refuses a job that asks for whole GPUs where there are none; ours: the first of our GRES that it asks for.
function whole.refuse(job_desc, ours, parse)
	local typed = whole.option(job_desc)
	if typed and ours then
		parse.refuse("%s: this asks for whole GPUs, and %s is of slices: leave it out; --vgpu-bind=task gives each task one of the slices", typed, ours)
	elseif typed then
		parse.refuse("%s: here GPUs are given out as slices: use --gres=vgpu:N, with --vgpu-mem=100%% --vgpu-cores=100 for GPUs to oneself", typed)
	end
end

local typed_gpus = { "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "ntasks-per-gpu" }

-- Where no node has gres/gpu, sbatch and srun refuse these with a text that does not say what to do.
function whole.refuse_typed(options, parse)
	local spank = options["spank"]
	for option, value in pairs(spank and spank["vgpu"] or {}) do
		for _, name in ipairs(typed_gpus) do
			local count = tostring(options[name] or "")
			if value ~= "unset" and count ~= "" and count ~= "-2" then -- as Slurm says that a number is not set
				parse.refuse("--%s=%s: this asks for whole GPUs, and --%s=%s is of slices: use --gres=vgpu:N", name, parse.shorten(count), option, parse.shorten(value))
			end
		end
	end
end

-- Options by which Slurm counts per whole GPU, of which a job with slices has none, and the options to write instead.
local by_gpu = {
	{ name = "cpus-per-gpu", key = "cpus_per_tres", instead = "use --cpus-per-task" },
	{ name = "mem-per-gpu", key = "mem_per_tres", instead = "use --mem, or --vgpu-mem for memory of the GPU" },
	{ name = "ntasks-per-gpu", instead = "use --ntasks-per-node" },
}

local function refuse_row(row, value, ours, parse)
	parse.refuse("--%s=%s: this is of whole GPUs, and %s is of slices: %s", row.name, parse.shorten(value), ours, row.instead)
end

-- Refuses it for a job that asks for some of ours and for no whole GPU.
function whole.refuse_by_gpu(job_desc, ours, parse)
	for _, row in ipairs(by_gpu) do
		local text = row.key and job_desc[row.key]
		if type(text) == "string" and text:find("gpu", 1, true) then refuse_row(row, text:match("gpu[:=](.*)$") or text, ours, parse) end
	end
end

-- The same where a command would refuse it first, and not say what to write. A number that is not set is 0, negative or very long.
function whole.refuse_typed_by_gpu(options, ours, parse)
	if asked(options["gres"]) then return end
	for i = 1, 4 do
		if tostring(options[typed_gpus[i]] or "") ~= "" then return end
	end
	for _, row in ipairs(by_gpu) do
		local value = tostring(options[row.name] or "")
		if #value < 12 and value:find("^[1-9]%d*%a*$") then refuse_row(row, value, ours, parse) end
	end
end

-- A job has whole GPUs or slices. Says whether it has whole ones.
function whole.refuse_both(job_desc, ours, parse)
	local typed = whole.option(job_desc)
	if typed and ours then parse.refuse("%s: %s is of slices, and this asks for whole GPUs: ask for one of the two", typed, ours) end
	return typed ~= nil
end

-- A changed job with whole GPUs gets no slices, and one that has some of our GRES no whole GPUs: Slurm goes on counting what it had.
function whole.refuse_the_other(job_desc, job_rec, has, parse)
	local typed, had = whole.option(job_desc), whole.option(job_rec)
	if typed and has and not had then -- whole GPUs have such counts beside them
		parse.refuse("%s: Slurm goes on counting %s of a job that has it: submit the job anew", typed, has)
	end
	if had and parse.mentions(job_desc.gres, "Gres") and not asked(job_desc.gres) then
		parse.refuse("Gres=%s: Slurm goes on counting the GPUs of a job that has them: submit the job anew", parse.shorten(parse.bare(job_desc.gres)))
	end
end

-- Adds to each list that asks for GPUs what these have. Says whether there was one.
function whole.count(job_desc, tab)
	local any = false
	local per_gpu = job_desc.ntasks_per_tres
	for _, key in ipairs(lists) do
		local gpus = asked(job_desc[key])
		if gpus then
			any = true
			-- With tasks by the GPU Slurm takes what is asked beside it for as many tasks as well.
			local more = (per_gpu == nil or per_gpu == 0 or per_gpu == not_set) and counts(tab, gpus)
			if more then
				local text = job_desc[key] .. more
				if key == "gres" then text = text:gsub("gres[:/]", "") end -- the setter writes it anew
				job_desc[key] = text
			end
		end
	end
	return any
end

return whole
