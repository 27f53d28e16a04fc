-- SPDX-FileCopyrightText: The slurm-vgpu authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Turns a job's vgpu request into GRES that Slurm can count, and refuses what no node can hold.
-- job_submit.lua and cli_filter.lua beside this file call it; a site's own scripts may do the same:
--
--     local vgpu = dofile("/usr/share/slurm-vgpu/vgpu.lua")
--     function slurm_job_submit(job_desc, part_list, submit_uid)
--         local rc = vgpu.job_submit(job_desc, part_list, submit_uid)
--         if rc ~= slurm.SUCCESS then return rc end
--         ... the site's own rules ...
--
-- A request reaches this file in two ways. `--gres=vgpu:2,gpumem:6000,gpucores:60` holds the job's
-- totals on each node. Options (`--vgpu-mem=3000`, per slice) arrive in their canonical form, which
-- the SPANK plugin made of them: `VGPU_REQUEST=mem=3000;cores=30` in job_desc.spank_job_env.
-- Both become the first kind. Users can forge all of it; they get what Slurm then counts.
--
-- Runs under Lua 5.1 to 5.4, inside slurmctld with its locks held: no waiting, no subprocesses.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local parse = dofile(here .. "vgpu_parse.lua")
local whole = dofile(here .. "vgpu_whole.lua")
local refuse = parse.refuse

local vgpu = {}

-- The table of nodes that vgpu-gres prints. Without it only spelling is checked.
vgpu.cluster_file = "/etc/slurm-vgpu/cluster.lua"

-- Whether gres/gpu are GPUs that the prolog places beside slices, as the nodes' config.yaml says (whole_gpus): true, false (they are
-- none of our business), "refuse" (there are none: say what to write instead), or a function of the job that says it.
vgpu.whole_gpus = false

local request_keys = { "mem", "cores", "place", "policy", "gpu", "uuid", "bind" }

local cache = {} -- text: of the file as last seen; table: the last good one

local function load_table(text)
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
	local slices = got.slices_per_gpu or 10
	if type(slices) ~= "number" or slices < 1 then return nil, "slices_per_gpu is no number from 1" end
	for i, node in ipairs(got.nodes) do
		for key, kind in pairs({ names = "string", gpus = "number", mem_mib = "number", type = "string" }) do
			if type(node) ~= "table" or type(node[key]) ~= kind then
				return nil, string.format("nodes[%d].%s is no %s", i, key, kind)
			end
		end
		if node.gpus < 1 or node.mem_mib < 1 then return nil, string.format("nodes[%d] has no GPU or no memory", i) end
	end
	return got
end

-- The table as it stands now; a broken or missing file leaves the last good one in force.
local function cluster()
	local file = io.open(vgpu.cluster_file, "rb")
	local text = file and file:read(1048576)
	if file then file:close() end
	if text and text ~= cache.text then
		local got, err = load_table(text)
		cache.text, cache.table = text, got or cache.table
		if not got then slurm.log_error("%s", "vgpu: " .. vgpu.cluster_file .. ": " .. err) end
	end
	return cache.table
end

-- What a filter admits: rows, and the same by node names, since a node with GPUs of two kinds has two rows.
local function groups_of(tab, filter)
	local groups, by_names, rows = {}, {}, {}
	for _, row in ipairs(tab.nodes) do
		local group = by_names[row.names] or { names = row.names, rows = {}, gpus = 0 }
		if not by_names[row.names] then
			by_names[row.names], groups[#groups + 1] = group, group
		end
		local kind = row.type:lower()
		if not filter or not filter.no[kind] and (filter.any or filter.only[kind]) then
			group.rows[#group.rows + 1], group.gpus, rows[#rows + 1] = row, group.gpus + row.gpus, row
		end
	end
	return groups, rows
end

local function types_of(tab)
	local types, seen = {}, {}
	for _, row in ipairs(tab.nodes) do
		if not seen[row.type] then types[#types + 1], seen[row.type] = row.type, true end
	end
	return table.concat(types, ", ")
end

-- The most of a number over rows or groups, and where it was found.
local function most(list, key)
	local best
	for _, entry in ipairs(list) do
		if not best or entry[key] > best[key] then best = entry end
	end
	return best
end

local function plural(n, thing)
	return string.format(n == 1 and "%d %s" or "%d %ss", n, thing)
end

-- Cores: the job's total of gpucores from what each slice may have.
local function settle_cores(got, request, defaults, name)
	local each, n = request.cores, got.vgpu
	if got.gpucores and each and math.floor(got.gpucores / n) ~= each then
		refuse("%s and %s differ: for %s of %d %% write gpucores:%d, or give one of the two", name("cores"), got.typed.gpucores, plural(n, "slice"), each, n * each)
	end
	if not got.gpucores then got.gpucores = n * (each or defaults.cores or 0) end
	if got.gpucores > 100 * n then
		refuse("%s: a GPU has 100 %% of its time: the most for %s is gpucores:%d", got.typed.gpucores, plural(n, "slice"), 100 * n)
	end
	if got.gpucores > 0 and got.gpucores < n then
		refuse("%s: less than 1 %% for each of %s: the least is gpucores:%d", got.typed.gpucores, plural(n, "slice"), n)
	end
end

-- Memory: MiB of each slice, and whether that is a share of whatever GPU it lands on.
local function settle_mem(got, request, defaults, name, tab, rows)
	local want, n = request.mem, got.vgpu
	if not want and not got.gpumem then want = defaults.mem end
	local each = want and want.mib
	if want and want.percent then
		if not tab then refuse("%s: this cluster has no table of its GPUs to take a share of: give MiB, as in --vgpu-mem=3000", name("mem")) end
		each = math.max(1, math.floor(want.percent * most(rows, "mem_mib").mem_mib / 100))
	end
	if got.gpumem then
		local given = math.floor(got.gpumem / n)
		if want and given ~= each then
			refuse("%s and %s differ: for %s of %d MiB write gpumem:%d, or give one of the two", name("mem"), got.typed.gpumem, plural(n, "slice"), each, n * each)
		end
		if given < 1 then refuse("%s: less than 1 MiB for each of %s", got.typed.gpumem, plural(n, "slice")) end
		return given, want and want.percent
	end
	if not each then
		if not tab then refuse("%s: no memory is asked for, and this cluster has no table of its GPUs to take a default from: add --vgpu-mem=3000", got.typed.vgpu) end
		-- The smallest GPU's share, so that a job without wishes may run anywhere.
		local smallest = rows[1].mem_mib
		for _, row in ipairs(rows) do smallest = math.min(smallest, row.mem_mib) end
		each = math.max(1, math.floor(smallest / (tab.slices_per_gpu or 10)))
	end
	got.gpumem = n * each
	return each, want and want.percent
end

-- Refuses what no node can ever hold. Returns the names of the nodes that cannot, although others can.
local function check_sizes(got, each, share, groups, rows, mem_name, admits)
	local n, largest, widest = got.vgpu, most(rows, "mem_mib"), most(groups, "gpus")
	if n > widest.gpus then
		refuse("%s: no node has %d GPUs%s: the most is %d (%s)", got.typed.vgpu, n, admits, widest.gpus, widest.names)
	end
	local need = share and 0 or each -- a share fits every GPU
	if need > largest.mem_mib then
		local part = ""
		if got.typed.gpumem and n > 1 then part = string.format(" for each of %d slices", n) end
		refuse("%s: no GPU%s has %d MiB%s: the most is %d MiB (%s)", mem_name, admits, need, part, largest.mem_mib, largest.type)
	end
	local hopeless = {}
	for _, group in ipairs(groups) do
		group.fits = 0
		for _, row in ipairs(group.rows) do
			if row.mem_mib >= need then group.fits = group.fits + row.gpus end
		end
		if group.fits < n then hopeless[#hopeless + 1] = group.names end
	end
	if #hopeless == #groups then
		local best = most(groups, "fits")
		refuse("%s with %d MiB each: no node has %d such GPUs%s: the most is %d (%s)", got.typed.vgpu, need, n, admits, best.fits, best.names)
	end
	return hopeless
end

-- Completes what the GRES leave open. Returns the nodes that can never hold it.
local function settle(got, request, defaults, name)
	if not got.vgpu then
		if not got.gpumem then refuse("%s: say how many slices as well, as in --gres=vgpu:1,gpucores:%d", got.typed.gpucores, got.gpucores) end
		got.vgpu = 1
	end
	got.typed.vgpu = got.typed.vgpu or got.typed.gpumem
	local tab = cluster()
	local filter = request.gpu or defaults.gpu
	local groups, rows, admits = {}, {}, ""
	if tab then
		groups, rows = groups_of(tab, filter)
		if filter then admits = " that " .. name("gpu") .. " admits" end
		if #rows == 0 then refuse("%s: this cluster has no such GPU: its types are %s", name("gpu"), types_of(tab)) end
	end
	local mem_name = got.typed.gpumem
	settle_cores(got, request, defaults, name)
	local each, share = settle_mem(got, request, defaults, name, tab, rows)
	if not tab then return {} end
	if not mem_name then mem_name = (request.mem or defaults.mem) and name("mem") or got.typed.vgpu end
	return check_sizes(got, each, share, groups, rows, mem_name, admits)
end

-- vgpu counts slices per node. What Slurm spreads over nodes, sockets or tasks by rules of its own
-- has no meaning that a node could know.
local function refuse_other_counts(job_desc)
	for _, per in ipairs({ "job", "socket", "task" }) do
		local found = parse.mentions(job_desc["tres_per_" .. per], "TRES per " .. per)
		if found then refuse("%s per %s: vgpu is counted per node only: use --gres=vgpu:N", found, per) end
	end
end

-- Runs a check and turns a refusal into the user's message and a return code.
local function guard(say, check, ...)
	local ok, err = pcall(check, ...)
	if ok then return slurm.SUCCESS end
	if type(err) == "table" and err.refusal then
		say("%s", "vgpu: " .. err.refusal)
		return slurm.ESLURM_INVALID_GRES or 2072 -- older Slurm does not name it to Lua
	end
	slurm.log_error("%s", "vgpu: fault in vgpu.lua: " .. tostring(err))
	say("%s", "vgpu: this job could not be checked: please tell the administrators")
	return slurm.ERROR
end

-- scontrol prints the job for the node with its owner's texts as they are, and the node believes no
-- answer in which these occur twice (internal/slurm).
local function refuse_imitations(job_desc)
	for option, key in pairs({ ["--comment"] = "comment", ["--job-name"] = "name" }) do
		for _, part in ipairs({ "\nJobId=", "JOB_GRES=" }) do
			local text = job_desc[key]
			if type(text) == "string" and text:find(part, 1, true) then
				refuse("%s: it has a line that imitates scontrol's output: leave out %s", option, part:match("%w.*"))
			end
		end
	end
end

-- Whether memory in the GRES was typed instead of a share that the environment holds as a default.
local function overrides_share(got, request, defaults)
	return got.typed.gpumem ~= nil and not request.mem and defaults.mem ~= nil and defaults.mem.percent ~= nil
end

-- What the site says of whole GPUs of a job.
local function whole_gpus_of(job)
	if type(vgpu.whole_gpus) == "function" then return vgpu.whole_gpus(job) end
	return vgpu.whole_gpus
end

-- Whether the job asks for whole GPUs that are placed beside slices. It cannot have both.
local function has_whole_gpus(job_desc, option, on)
	if not on then return false end
	if on == "refuse" then
		local typed = whole.option(job_desc)
		if typed then refuse("%s: here GPUs are given out as slices: use --gres=vgpu:N, with --vgpu-mem=100%% --vgpu-cores=100 for GPUs to oneself", typed) end
		return false
	end
	local ours = parse.mentions(job_desc.gres, option)
	if ours then
		if whole.asked(job_desc.gres) then refuse("%s=%s: %s is of slices, and gpu is a whole GPU: ask for one of the two", option, parse.shorten(parse.bare(job_desc.gres)), ours) end
		return false
	end
	return whole.count(job_desc, cluster())
end

local function submit(job_desc)
	refuse_other_counts(job_desc)
	if has_whole_gpus(job_desc, "--gres", whole_gpus_of(job_desc)) then
		local request, _, name = parse.options(job_desc.spank_job_env)
		for _, key in ipairs(request_keys) do
			if request[key] ~= nil then refuse("%s: this is of slices, and the job asks for whole GPUs: use --gres=vgpu:N instead of these", name(key)) end
		end
		refuse_imitations(job_desc)
		return
	end
	local asked, env = parse.mentions(job_desc.gres, "--gres"), job_desc.spank_job_env
	if not asked and not env then return end
	local request, defaults, name = parse.options(env)
	if not asked then
		for _, key in ipairs(request_keys) do
			if request[key] ~= nil then refuse("%s: say how many slices as well, as in --gres=vgpu:1", name(key)) end
		end
		return
	end
	refuse_imitations(job_desc)
	local got = parse.gres(job_desc.gres, "--gres")
	got.mem_first = overrides_share(got, request, defaults)
	local hopeless = settle(got, request, defaults, name)
	job_desc.gres = parse.render(got)
	if #hopeless == 0 then return end
	local names, before = table.concat(hopeless, ","), job_desc.exc_nodes
	job_desc.exc_nodes = before and before ~= "" and before .. "," .. names or names
	if job_desc.req_nodes and job_desc.req_nodes ~= "" then -- Slurm's own refusal would not say why
		slurm.log_user("%s", string.format("vgpu: excluded, because they can never hold %s of %d MiB: %s", plural(got.vgpu, "slice"), math.floor(got.gpumem / got.vgpu), names))
	end
end

-- The node gives a slice no more than the options that the job was submitted with, which nobody can
-- change any more. Slurm must not count more than that. Defaults hold nobody.
local function hold_to_options(got, request, name)
	local each, mem, tab = math.floor(got.gpumem / got.vgpu), request.mem or {}, cluster()
	local most_mib = mem.mib
	if mem.percent and tab then
		most_mib = math.max(1, math.floor(mem.percent * most(tab.nodes, "mem_mib").mem_mib / 100))
	end
	if most_mib and each > most_mib then
		refuse("%s: the job was submitted with %s, which holds each slice to %d MiB: the most is gpumem:%d", got.typed.gpumem or got.typed.vgpu, name("mem"), most_mib, got.vgpu * most_mib)
	end
	if request.cores and request.cores > 0 and math.floor(got.gpucores / got.vgpu) > request.cores then
		refuse("%s: the job was submitted with %s, which holds each slice to %d %%: the most is gpucores:%d", got.typed.gpucores or got.typed.vgpu, name("cores"), request.cores, got.vgpu * request.cores)
	end
end

-- The first of our GRES that the job asked for; none if that cannot be read.
local function held(job_rec)
	local known, found = pcall(parse.mentions, job_rec.gres, "Gres")
	return known and found or nil
end

-- A changed job keeps its sizes per slice where the new GRES name none.
local function modify(job_desc, job_rec)
	refuse_other_counts(job_desc)
	local on = whole_gpus_of(job_rec)
	if has_whole_gpus(job_desc, "Gres", on) then return refuse_imitations(job_desc) end
	if on and type(job_desc.gres) == "string" and whole.asked(job_rec.gres) then
		refuse("Gres=%s: Slurm goes on counting the GPUs of a job that has them: submit the job anew", parse.shorten(parse.bare(job_desc.gres)))
	end
	local asked, has = parse.mentions(job_desc.gres, "Gres"), held(job_rec)
	if asked or has then refuse_imitations(job_desc) end
	if not asked then
		-- Slurm goes on counting what an update does not name or sets to 0 (seen on 22.05), and only hides it.
		if has and job_desc.gres then
			refuse("Gres=%s: Slurm goes on counting %s of a job that has it: submit the job anew", parse.shorten(parse.bare(job_desc.gres)), has)
		end
		return
	end
	local got = parse.gres(job_desc.gres, "Gres")
	local known, before = pcall(parse.gres, job_rec.gres, "Gres") -- may be older than this script
	if not known then before = {} end
	local defaults, n = {}, before.vgpu or 1
	if before.gpumem then defaults.mem = { mib = math.floor(before.gpumem / n) } end
	if before.gpucores then defaults.cores = math.floor(before.gpucores / n) end
	settle(got, {}, defaults, function() return got.typed.vgpu end)
	if got.gpucores == 0 and (before.gpucores or 0) > 0 then
		refuse("%s: Slurm goes on counting the gpucores of a job that has them: give another share, or submit the job anew", got.typed.gpucores or got.typed.vgpu)
	end
	local readable, request, submitted, name = pcall(parse.options, job_rec.spank_job_env)
	if readable then -- else the node reads no more of it
		hold_to_options(got, request, name)
		got.mem_first = overrides_share(got, request, submitted) or got.typed.gpumem == nil and before.mem_first
	end
	job_desc.gres = parse.render(got)
end

-- For slurm_job_submit. Jobs without vgpu cost three string searches.
function vgpu.job_submit(job_desc, part_list, submit_uid)
	return guard(slurm.log_user, submit, job_desc)
end

-- For slurm_job_modify: scontrol update Gres=… must not undo what job_submit saw to.
function vgpu.job_modify(job_desc, job_rec, part_list, modify_uid)
	return guard(slurm.log_user, modify, job_desc, job_rec)
end

-- Where no node has gres/gpu, sbatch and srun refuse these with a text that does not say what to do.
local function refuse_whole_gpus(options)
	local spank = options["spank"]
	for option, value in pairs(spank and spank["vgpu"] or {}) do
		for _, whole in ipairs({ "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "ntasks-per-gpu" }) do
			local count = tostring(options[whole] or "")
			if value ~= "unset" and count ~= "" and count ~= "-2" then -- as Slurm says that a number is not set
				refuse("--%s=%s: this asks for whole GPUs, and --%s=%s is of slices: use --gres=vgpu:N", whole, parse.shorten(count), option, parse.shorten(value))
			end
		end
	end
end

-- For slurm_cli_pre_submit: the spelling of --gres, before anything leaves the user's machine. A step may say that it
-- wants no slice; of a job that says so job_submit knows.
function vgpu.cli_filter(options)
	return guard(slurm.log_error, function()
		if not parse.asks_for_none(options["gres"], "--gres") then
			parse.gres(options["gres"], "--gres")
		else
			refuse_whole_gpus(options)
		end
	end)
end

return vgpu
