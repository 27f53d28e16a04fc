-- SPDX-FileCopyrightText: The slurm-vgpu authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Tests of whole GPUs in vgpu.lua: `lua5.1 vgpu_whole_test.lua FOLDER`, where FOLDER is for scratch files. lua_test.go runs it.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local scratch = assert(arg[1], "usage: lua vgpu_whole_test.lua FOLDER")
local failures, checks = 0, 0

local said
slurm = {
	SUCCESS = 0, ERROR = -1,
	log_user = function(format, ...) said = string.format(format, ...) end,
	log_error = function(format, ...) print("logged: " .. string.format(format, ...)) end,
}

local function check(what, got, want)
	checks = checks + 1
	if got == want then return end
	failures = failures + 1
	print(string.format("FAIL %s:\n  got  %s\n  want %s", what, tostring(got), tostring(want)))
end

local function module_of(text, on)
	local vgpu = dofile(here .. "vgpu.lua")
	vgpu.cluster_file = scratch .. "/missing.lua"
	vgpu.whole_gpus = on
	if text then
		vgpu.cluster_file = scratch .. "/whole.lua"
		local file = assert(io.open(vgpu.cluster_file, "w"))
		file:write(text)
		file:close()
	end
	return vgpu
end

local mixed = [[return {nodes={
	{names="n[1-4]", gpus=2, mem_mib=143771, type="h200"},
	{names="a[1-9]", gpus=8, mem_mib=40960, type="a100"},
}}]]
local vgpu = module_of(mixed, true)

local function accept(what, job, key, want)
	said = nil
	check(what .. " code", vgpu.job_submit(job, {}, 1000), slurm.SUCCESS)
	check(what .. " says", said, nil)
	check(what .. " " .. key, job[key], want)
end

local function refuse(what, job, message)
	said = nil
	check(what .. " code", vgpu.job_submit(job, {}, 1000), 2072)
	check(what .. " says", said, message)
end

for gres, want in pairs({
	["gpu:1"] = "gpu:1,gpumem:40960,gpucores:100", ["gpu"] = "gpu,gpumem:40960,gpucores:100",
	["gpu:0000001"] = "gpu:0000001,gpumem:40960,gpucores:100", ["gpu:h200:0000002"] = "gpu:h200:0000002,gpumem:287542,gpucores:200",
	["gres:gpu:h200:2"] = "gpu:h200:2,gpumem:287542,gpucores:200",
	["gres/gpu:H200:2"] = "gpu:H200:2,gpumem:287542,gpucores:200",
	["gres:gpu:a100:1,gres:gpu:h200:1"] = "gpu:a100:1,gpu:h200:1,gpumem:81920,gpucores:200",
	["gpu:unheard:1"] = "gpu:unheard:1,gpumem:40960,gpucores:100",
	["license:2,gpu:1"] = "license:2,gpu:1,gpumem:40960,gpucores:100",
	["gpu:0"] = "gpu:0", ["shard:1"] = "shard:1", ["gpus:1"] = "gpus:1", ["none"] = "none", ["gpu:99999999999"] = "gpu:99999999999",
}) do
	accept(gres, { gres = gres }, "gres", want)
end
for key, per in pairs({ tres_per_job = "gres:gpu:4", tres_per_socket = "gres:gpu:4", tres_per_task = "gres:gpu:4" }) do
	accept(key, { [key] = per }, key, per .. ",gres:gpumem:163840,gres:gpucores:400")
end
accept("newer Slurm", { tres_per_task = "cpu:2,gres/gpu:1" }, "tres_per_task", "cpu:2,gres/gpu:1,gres/gpumem:40960,gres/gpucores:100")
accept("newer Slurm's other words", { tres_per_job = "gres/gpu=1" }, "tres_per_job", "gres/gpu=1,gres/gpumem=40960,gres/gpucores=100")
accept("not set", { gres = "gpu:1", ntasks_per_tres = 65534 }, "gres", "gpu:1,gpumem:40960,gpucores:100")
accept("tasks by the GPU", { tres_per_job = "gres:gpu:2", ntasks_per_tres = 2 }, "tres_per_job", "gres:gpu:2")
accept("defaults of slices", { gres = "gpu:1", spank_job_env = { [0] = "VGPU_DEFAULTS=mem=3000" } }, "gres", "gpu:1,gpumem:40960,gpucores:100")
accept("slices", { gres = "vgpu:1,gpumem:3000" }, "gres", "vgpu:1,gpumem:3000")

refuse("both", { gres = "gres:gpu:1,gres:vgpu:1" }, "vgpu: --gres=gpu:1,vgpu:1: vgpu is of slices, and gpu is a whole GPU: ask for one of the two")
refuse("memory beside", { gres = "gpu:1,gpumem:3000" }, "vgpu: --gres=gpu:1,gpumem:3000: gpumem is of slices, and gpu is a whole GPU: ask for one of the two")
for _, gpus in ipairs({ { gres = "gpu:1" }, { tres_per_job = "gres:gpu:1" } }) do
	gpus.spank_job_env = { [0] = "VGPU_REQUEST=mem=2048", "VGPU_TYPED=mem=2G" }
	refuse("an option of slices", gpus, "vgpu: --vgpu-mem=2G: this is of slices, and the job asks for whole GPUs: use --gres=vgpu:N instead of these")
end
refuse("imitation", { gres = "gpu:1", comment = "a\nJobId=1" }, "vgpu: --comment: it has a line that imitates scontrol's output: leave out JobId=")

for typed, job in pairs({
	["--gpus=4"] = { tres_per_job = "gres:gpu:4" }, ["--gpus-per-task=4"] = { tres_per_task = "gres/gpu:0000004" }, ["--ntasks-per-gpu=1"] = { ntasks_per_tres = 1 },
}) do
	job.gres = "vgpu:1,gpumem:3000"
	refuse("slices and " .. typed, job, "vgpu: " .. typed .. ": vgpu is of slices, and this asks for whole GPUs: ask for one of the two")
end
refuse("a long list", { gres = "gpu:1" .. (",gpu:0"):rep(700) }, "vgpu: --gres: 4205 characters: at most 4096 are read")
refuse("a long list for the job", { tres_per_job = "gres:gpu:1" .. (",gres:gpu:0"):rep(400) }, "vgpu: TRES per job: 4410 characters: at most 4096 are read")

local function modify(what, new, old, want, message)
	local change = { gres = new }
	said = nil
	check(what .. " code", vgpu.job_modify(change, { gres = old }, {}, 1000), message and 2072 or slurm.SUCCESS)
	check(what .. " says", said, message)
	check(what .. " GRES", change.gres, want)
end
local one = "gres:gpu:1,gres:gpumem:40960,gres:gpucores:100"
modify("more GPUs", "gres:gpu:h200:2", one, "gpu:h200:2,gpumem:287542,gpucores:200")
modify("something else", nil, one, nil)
modify("whole GPUs instead of slices", "gres:gpu:2", "gres:vgpu:1,gres:gpumem:3000", "gres:gpu:2", "vgpu: --gres=gpu:2: Slurm goes on counting vgpu of a job that has it: submit the job anew")
for what, update in pairs({
	["slices instead of --gpus"] = { { gres = "vgpu:1" }, { tres_per_job = "gres:gpu:2" }, "vgpu: Gres=vgpu:1: Slurm goes on counting the GPUs of a job that has them: submit the job anew" },
	["--gpus instead of slices"] = { { tres_per_job = "gres:gpu:4" }, { gres = "gres:vgpu:1" }, "vgpu: --gpus=4: Slurm goes on counting vgpu of a job that has it: submit the job anew" },
}) do
	said = nil
	check(what .. " code", vgpu.job_modify(update[1], update[2], {}, 1000), 2072)
	check(what .. " says", said, update[3])
end
modify("slices instead", "gres:vgpu:1", one, "gres:vgpu:1", "vgpu: Gres=vgpu:1: Slurm goes on counting the GPUs of a job that has them: submit the job anew")
modify("nothing instead", "gres:", one, "gres:", "vgpu: Gres=: Slurm goes on counting the GPUs of a job that has them: submit the job anew")

vgpu = module_of(nil, true)
accept("no table", { gres = "gpu:2" }, "gres", "gpu:2,gpucores:200")
vgpu = module_of(mixed, function(job) return job.partition ~= "split" end)
accept("one partition", { gres = "gpu:2", partition = "whole" }, "gres", "gpu:2,gpumem:81920,gpucores:200")
local change = { gres = "gres:gpu:2" }
check("a job there is changed", vgpu.job_modify(change, { gres = "gres:gpu:1", partition = "split" }, {}, 1000), slurm.SUCCESS)
check("a job there keeps to what it asks for", change.gres, "gres:gpu:2")
vgpu.job_modify(change, { gres = one, partition = "whole" }, {}, 1000)
check("a job of the other is counted", change.gres, "gpu:2,gpumem:81920,gpucores:200")
accept("another one", { gres = "gpu:2", partition = "split" }, "gres", "gpu:2")
vgpu = module_of(mixed, "refuse")
for typed, job in pairs({
	["--gres=gpu:h200:2"] = { gres = "gres:gpu:h200:2" }, ["--gres=gpu:l40s.2:1"] = { gres = "gres/gpu:l40s.2:1" },
	["--gres=gpu:2"] = { gres = "gpu:h200:1,gpu:a100:1" }, ["--gpus=h200:1"] = { tres_per_job = "gres/gpu:h200" }, ["--gpus=4"] = { tres_per_job = "gres:gpu:4" }, ["--gpus-per-task=1"] = { tres_per_task = "gres/gpu:1" },
	["--gpus-per-socket=1"] = { tres_per_socket = "gres:gpu:1" }, ["--ntasks-per-gpu=2"] = { ntasks_per_tres = 2 },
}) do
	refuse("refuse " .. typed, job, "vgpu: " .. typed .. ": here GPUs are given out as slices: use --gres=vgpu:N, with --vgpu-mem=100% --vgpu-cores=100 for GPUs to oneself")
end
accept("slices, where GPUs are refused", { gres = "vgpu:1,gpumem:3000", ntasks_per_tres = 65534 }, "gres", "vgpu:1,gpumem:3000")
accept("nothing, where GPUs are refused", { gres = "gpu:0" }, "gres", "gpu:0")
local leave = ": this asks for whole GPUs, and vgpu is of slices: leave it out; --vgpu-bind=task gives each task one of the slices"
for typed, job in pairs({
	["--gres=gpu:1"] = { gres = "gres:gpu:1,gres:vgpu:1" }, ["--gpus=4"] = { tres_per_job = "gres:gpu:4" }, ["--ntasks-per-gpu=2"] = { ntasks_per_tres = 2 },
}) do
	job.gres = job.gres or "vgpu:1"
	refuse("refuse " .. typed .. " beside slices", job, "vgpu: " .. typed .. leave)
end

accept("what means nothing to slices, and harms nothing", { gres = "vgpu:1,gpumem:3000", tres_bind = "gres:gpu:closest", tres_freq = "gpu:low" }, "gres", "vgpu:1,gpumem:3000")

-- Not set, the script goes by the table, which says it of the whole cluster or not at all.
vgpu = module_of(mixed:gsub("nodes=", "gres_gpu=false, nodes="), nil)
refuse("the table", { tres_per_job = "gres:gpu:1" }, "vgpu: --gpus=1: here GPUs are given out as slices: use --gres=vgpu:N, with --vgpu-mem=100% --vgpu-cores=100 for GPUs to oneself")
refuse("the table, beside slices", { gres = "vgpu:1", tres_per_task = "gres:gpu:1" }, "vgpu: --gpus-per-task=1" .. leave)
accept("slices by that table", { gres = "vgpu:1,gpumem:3000" }, "gres", "vgpu:1,gpumem:3000")
vgpu = module_of(mixed:gsub("nodes=", "gres_gpu=false, nodes="), false)
accept("the script before the table", { tres_per_job = "gres:gpu:2" }, "tres_per_job", "gres:gpu:2")
vgpu = module_of(mixed, nil)
accept("a table that does not say it", { tres_per_job = "gres:gpu:2" }, "tres_per_job", "gres:gpu:2")
vgpu = module_of(nil, nil)
accept("no table, nothing set", { tres_per_job = "gres:gpu:2" }, "tres_per_job", "gres:gpu:2")

-- What is counted by the whole GPU means nothing to slices, whatever the site has; beside whole GPUs it is theirs.
for says, job in pairs({
	["--cpus-per-gpu=4: this is of whole GPUs, and vgpu is of slices: use --cpus-per-task"] = { cpus_per_tres = "gres:gpu:4" },
	["--mem-per-gpu=2048: this is of whole GPUs, and vgpu is of slices: use --mem, or --vgpu-mem for memory of the GPU"] = { mem_per_tres = "gres/gpu:2048" },
}) do
	job.gres = "vgpu:1,gpumem:3000"
	refuse(says, job, "vgpu: " .. says)
	job.gres, job.tres_per_job = nil, "gres:gpu:1"
	accept("whole GPUs, " .. says, job, "tres_per_job", "gres:gpu:1")
	job.gres, job.tres_per_job = "disk:1", nil
	accept("neither, " .. says, job, "gres", "disk:1")
end

vgpu = module_of(mixed, false)
accept("switched off", { gres = "gpu:2" }, "gres", "gpu:2")
accept("switched off, per job", { tres_per_job = "gres:gpu:2" }, "tres_per_job", "gres:gpu:2")

print(string.format("%d checks, %d failures", checks, failures))
os.exit(failures == 0 and 0 or 1)
