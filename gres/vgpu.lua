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
local shards = dofile(here .. "vgpu_shards.lua")
local priority = dofile(here .. "vgpu_priority.lua")
local sizes = dofile(here .. "vgpu_sizes.lua")
local table_of = dofile(here .. "vgpu_table.lua")
local refuse = parse.refuse

local vgpu = {}

-- The table of nodes that vgpu-gres prints. Without it only spelling is checked.
vgpu.cluster_file = "/etc/slurm-vgpu/cluster.lua"

-- Whether gres/gpu are GPUs that the prolog places beside slices, as the nodes' config.yaml says (whole_gpus): true, false (they are
-- none of our business), "refuse" (there are none: say what to write instead), nil ("refuse" where the table says that no node has any,
-- else false), or a function of the job that says it.
vgpu.whole_gpus = nil

-- Whether Slurm picks the GPUs, by shards, as the nodes' config.yaml says (shards): true, false, nil (as the table says of its
-- nodes), or a function of the job that says it.
vgpu.shards = nil

local cache = {} -- text: of the file as last seen; table: the last good one

-- The table as it stands now; a broken or missing file leaves the last good one in force.
local function cluster()
	local file = io.open(vgpu.cluster_file, "rb")
	local text = file and file:read(1048576)
	if file then file:close() end
	if text and text ~= cache.text then
		local got, err = table_of.load(text)
		cache.text, cache.table = text, got or cache.table
		if not got then slurm.log_error("%s", "vgpu: " .. vgpu.cluster_file .. ": " .. err) end
	end
	return cache.table
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
		each = table_of.share(rows, want.percent)
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
	local n, largest, widest = got.vgpu, table_of.most(rows, "mem_mib"), table_of.most(groups, "gpus")
	if n > widest.gpus then
		refuse("%s: no node has %d GPUs%s: the most is %d (%s)", got.typed.vgpu, n, admits, widest.gpus, widest.names)
	end
	local need = share and not got.shard and 0 or each -- a share fits every GPU, where Slurm does not count it by GPU
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
		if group.fits < n or got.shard and not shards.fit(group, got.shard) then hopeless[#hopeless + 1] = group.names end
	end
	if #hopeless == #groups then
		if got.shard then refuse("%s: no node has only GPUs that hold shard:%d%s, and Slurm may pick any of a node's", mem_name, got.shard, admits) end
		local best = table_of.most(groups, "fits")
		refuse("%s with %d MiB each: no node has %d such GPUs%s: the most is %d (%s)", got.typed.vgpu, need, n, admits, best.fits, best.names)
	end
	return hopeless
end

-- Refuses the options that cannot hold where Slurm picks the GPU.
local function refuse_picking(got, request, defaults, name)
	if got.vgpu > 1 then
		refuse("%s: here Slurm gives a job parts of one GPU on each node: use vgpu:1, with more nodes for more slices, or --gpus=%d for whole GPUs", got.typed.vgpu, got.vgpu)
	end
	for _, row in ipairs(parse.keys) do
		if row.picks and request[row.name] ~= nil then refuse("%s: here Slurm picks the GPU: leave it out", name(row.name)) end
	end
	if defaults.uuid ~= nil then refuse("VGPU_UUID: here Slurm picks the GPU: unset it") end
end

-- Counts the shards of a slice. Who typed another number beside gpumem would get less of one than of the other.
local function settle_shards(got, each, rows)
	local n, typed = shards.of_slice(each, got.gpucores, rows), got.shard
	if typed and typed ~= n then refuse("%s: a slice of %d MiB and %d %% has shard:%d: leave shard out", got.typed.shard, each, got.gpucores, n) end
	got.shard = n
end

-- Completes what the GRES leave open; on: with shards. Returns the nodes that can never hold it.
local function settle(got, request, defaults, name, on)
	if not got.vgpu then
		if not got.gpumem then refuse("%s: say how many slices as well, as in --gres=vgpu:1,gpucores:%d", got.typed.gpucores, got.gpucores) end
		got.vgpu = 1
	end
	got.typed.vgpu = got.typed.vgpu or got.typed.gpumem
	if on then refuse_picking(got, request, defaults, name) end
	local tab, filter = cluster(), request.gpu or defaults.gpu
	local groups, rows, admits = {}, {}, ""
	if tab then
		groups, rows = table_of.groups(shards.rows(tab, on), filter)
		if filter then admits = " that " .. name("gpu") .. " admits" end
		if #rows == 0 then refuse("%s: this cluster has no such GPU: its types are %s", name("gpu"), table_of.types(tab)) end
	end
	if got.size then sizes.settle(got, request, name, tab, rows, table_of, parse) end
	local mem_name = got.typed.gpumem
	settle_cores(got, request, defaults, name)
	local each, share = settle_mem(got, request, defaults, name, tab, rows)
	if on and not tab and got.gpucores > 0 then
		refuse("%s: this cluster has no table of its GPUs to take a share of: leave it out", got.typed.gpucores or name("cores"))
	end
	if on then settle_shards(got, each, rows) end
	if not tab then return {} end
	if not mem_name then mem_name = (request.mem or defaults.mem) and name("mem") or got.typed.vgpu end
	return check_sizes(got, each, share, groups, rows, mem_name, admits)
end

-- vgpu counts slices per node. What Slurm spreads over nodes, sockets or tasks by rules of its own
-- has no meaning that a node could know.
local function refuse_other_counts(job_desc, on)
	for _, per in ipairs({ "job", "socket", "task" }) do
		local found = parse.mentions(job_desc["tres_per_" .. per], "TRES per " .. per, on)
		if found then refuse("%s per %s: %s is counted per node only: use --gres=%s:N", found, per, found == "shard" and found or "vgpu", found == "shard" and found or "vgpu") end
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

-- The site's rule for whole GPUs of a job. Only a job that asks for some costs a look into the table.
local function whole_gpus_of(job)
	local on = vgpu.whole_gpus
	if type(on) == "function" then on = on(job) end
	if on == nil then return whole.option(job) and (cluster() or {}).gres_gpu == false and "refuse" end
	return on
end

-- Whether Slurm picks the GPUs of a job by shards.
local function shards_of(job)
	local on = vgpu.shards
	if type(on) == "function" then on = on(job) end
	if on == nil then return shards.any(cluster()) end
	return on and true or false
end

-- Where it does, whole GPUs are Slurm's own business; but a job has them or a slice.
local function has_slurms_gpus(job_desc, option)
	return whole.refuse_both(job_desc, parse.mentions(job_desc.gres, option, true), parse)
end

-- Whether the job asks for whole GPUs that are placed beside slices. It cannot have both.
local function has_whole_gpus(job_desc, option, on)
	if not on then return false end
	whole.bound(job_desc, option, parse.bound)
	if on == "refuse" then
		whole.refuse(job_desc, parse.mentions(job_desc.gres, option), parse)
		return false
	end
	local ours = parse.mentions(job_desc.gres, option)
	if ours then
		if whole.asked(job_desc.gres) then refuse("%s=%s: %s is of slices, and gpu is a whole GPU: ask for one of the two", option, parse.shorten(parse.bare(job_desc.gres)), ours) end
		whole.refuse_both(job_desc, ours, parse)
		return false
	end
	return whole.count(job_desc, cluster())
end

local function submit(job_desc)
	local on = shards.concern(job_desc) and shards_of(job_desc)
	refuse_other_counts(job_desc, on)
	if on and has_slurms_gpus(job_desc, "--gres") or not on and has_whole_gpus(job_desc, "--gres", whole_gpus_of(job_desc)) then
		local request, _, name = parse.options(job_desc.spank_job_env)
		for _, row in ipairs(parse.keys) do
			if request[row.name] ~= nil then refuse("%s: this is of slices, and the job asks for whole GPUs: use --gres=vgpu:N instead of these", name(row.name)) end
		end
		refuse_imitations(job_desc)
		return
	end
	local asked, env = parse.mentions(job_desc.gres, "--gres", on), job_desc.spank_job_env
	if not asked and not env then return end
	local request, defaults, name = parse.options(env)
	if not asked then
		for _, row in ipairs(parse.keys) do
			if request[row.name] ~= nil then refuse("%s: say how many slices as well, as in --gres=vgpu:1", name(row.name)) end
		end
		return
	end
	refuse_imitations(job_desc)
	if not whole.option(job_desc) then whole.refuse_by_gpu(job_desc, asked, parse) end
	if on and job_desc.shared == 0 then -- seen with 24.11.5
		refuse("--exclusive: Slurm gives such a job every GPU of its nodes, and finds no shards beside them: leave it out, or ask for --gpus=1")
	end
	local got = parse.gres(job_desc.gres, "--gres", on)
	local hopeless = settle(got, request, defaults, name, on)
	got.mem_first = overrides_share(got, request, defaults)
	if (request.priority or defaults.priority) == "latency" then
		priority.check(job_desc, (cluster() or {}).latency, got.gpucores, name("priority"), parse)
	end
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
		most_mib = table_of.share(tab.nodes, mem.percent)
	end
	if most_mib and each > most_mib then
		refuse("%s: the job was submitted with %s, which holds each slice to %d MiB: the most is gpumem:%d", got.typed.gpumem or got.typed.vgpu, name("mem"), most_mib, got.vgpu * most_mib)
	end
	if request.cores and request.cores > 0 and math.floor(got.gpucores / got.vgpu) > request.cores then
		refuse("%s: the job was submitted with %s, which holds each slice to %d %%: the most is gpucores:%d", got.typed.gpucores or got.typed.vgpu, name("cores"), request.cores, got.vgpu * request.cores)
	end
end

-- The first of our GRES that the job asked for; none if that cannot be read.
local function held(job_rec, on)
	local known, found = pcall(parse.mentions, job_rec.gres, "Gres", on)
	return known and found or nil
end

-- A changed job keeps its sizes per slice where the new GRES name none.
local function modify(job_desc, job_rec)
	local was, on = shards_of(job_rec), shards_of(shards.changed(job_desc, job_rec))
	local moved = was ~= on and held(job_rec, true)
	if moved then refuse("%s", shards.moved(job_desc, moved, on)) end
	refuse_other_counts(job_desc, on)
	local wholes = not on and whole_gpus_of(job_rec)
	if wholes and wholes ~= "refuse" then whole.refuse_the_other(job_desc, job_rec, held(job_rec), parse) end
	if on and has_slurms_gpus(job_desc, "Gres") or has_whole_gpus(job_desc, "Gres", wholes) then return refuse_imitations(job_desc) end
	if wholes and type(job_desc.gres) == "string" and whole.asked(job_rec.gres) then
		refuse("Gres=%s: Slurm goes on counting the GPUs of a job that has them: submit the job anew", parse.shorten(parse.bare(job_desc.gres)))
	end
	local asked, has = parse.mentions(job_desc.gres, "Gres", on), held(job_rec, on)
	if asked or has then refuse_imitations(job_desc) end
	if not asked then
		-- Slurm goes on counting what an update does not name or sets to 0 (seen on 22.05), and only hides it.
		if has and job_desc.gres then
			refuse("Gres=%s: Slurm goes on counting %s of a job that has it: submit the job anew", parse.shorten(parse.bare(job_desc.gres)), has)
		end
		return
	end
	local got = parse.gres(job_desc.gres, "Gres", on)
	local known, before = pcall(parse.gres, job_rec.gres, "Gres", on) -- may be older than this script
	if not known then before = {} end
	local defaults, n = {}, before.vgpu or 1
	if before.gpumem then defaults.mem = { mib = math.floor(before.gpumem / n) } end
	if before.gpucores then defaults.cores = math.floor(before.gpucores / n) end
	local readable, request, submitted, name = pcall(parse.options, job_rec.spank_job_env)
	if readable then defaults.gpu = request.gpu or submitted.gpu end -- it still holds, so that a size is a share of these GPUs
	settle(got, {}, defaults, function(key) return key == "gpu" and name(key) or got.typed.vgpu end, on)
	if got.gpucores == 0 and (before.gpucores or 0) > 0 then
		refuse("%s: Slurm goes on counting the gpucores of a job that has them: give another share, or submit the job anew", got.typed.gpucores or got.typed.vgpu)
	end
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

-- The spelling of --gres. Each srun makes a step of it, unseen by job_submit: here it gets numbers for a size, and shards, or may open no GPU.
local function filter_gres(options)
	local of_job, srun = os.getenv("SLURM_SHARDS_ON_NODE"), options["type"] == "srun"
	local in_job = srun and os.getenv("SLURM_JOB_ID") and (of_job or vgpu.shards == true)
	local got = parse.gres(options["gres"], "--gres", in_job)
	if srun and got.size then options["gres"] = sizes.of_srun(got, options["spank"], cluster(), table_of, parse) end
	local n = in_job and shards.of_step(got, of_job)
	if n then options["gres"] = string.format("%s,shard:%d", parse.bare(options["gres"]), n) end
end

-- For slurm_cli_pre_submit: the spelling of --gres, before anything leaves the user's machine. A step may say that it
-- wants no slice; of a job that says so job_submit knows.
function vgpu.cli_filter(options)
	return guard(slurm.log_error, function()
		if not parse.asks_for_none(options["gres"], "--gres") then
			whole.refuse_typed_by_gpu(options, parse.mentions(options["gres"], "--gres"), parse)
			filter_gres(options)
		else
			parse.refuse_misspelt(options["gres"], "--gres")
			whole.refuse_typed(options, parse)
		end
	end)
end

return vgpu
