-- SPDX-FileCopyrightText: The slurm-vgpu authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Tests of shards in vgpu.lua: `lua5.1 vgpu_shards_test.lua FOLDER`, where FOLDER is for scratch files. lua_test.go runs it.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local scratch = assert(arg[1], "usage: lua vgpu_shards_test.lua FOLDER")
local failures, checks = 0, 0

local said
slurm = {
	SUCCESS = 0, ERROR = -1,
	log_user = function(format, ...) said = string.format(format, ...) end,
	log_error = function(format, ...) said = string.format(format, ...) end,
}

local function check(what, got, want)
	checks = checks + 1
	if got == want then return end
	failures = failures + 1
	print(string.format("FAIL %s:\n  got  %s\n  want %s", what, tostring(got), tostring(want)))
end

local function module_of(text)
	local vgpu = dofile(here .. "vgpu.lua")
	vgpu.cluster_file = scratch .. "/missing.lua"
	if text then
		vgpu.cluster_file = scratch .. "/shards.lua"
		local file = assert(io.open(vgpu.cluster_file, "w"))
		file:write(text)
		file:close()
	end
	return vgpu
end

local vgpu = module_of([[return {nodes={
	{names="h[1-4]", gpus=2, mem_mib=143771, type="h200", shards=143771},
	{names="a[1-9]", gpus=8, mem_mib=40960, type="a100", shards=40960},
	{names="m1", gpus=1, mem_mib=143771, type="h200", shards=143771}, {names="m1", gpus=1, mem_mib=40960, type="a100", shards=40960},
}}]])

local function accept(what, job, want, excluded)
	said = nil
	check(what .. " code", vgpu.job_submit(job, {}, 1000), slurm.SUCCESS)
	check(what .. " says", said, nil)
	check(what .. " gres", job.gres, want)
	check(what .. " excludes", job.exc_nodes, excluded)
end

local function refuse(what, job, message)
	said = nil
	check(what .. " code", vgpu.job_submit(job, {}, 1000), 2072)
	check(what .. " says", said, message)
end

local function options(text) return { [0] = "VGPU_REQUEST=" .. text } end

accept("memory", { gres = "gres/vgpu:1", spank_job_env = options("mem=3000") }, "vgpu:1,gpumem:3000,shard:3000")
accept("memory in GRES", { gres = "gres/gpumem:3000" }, "vgpu:1,gpumem:3000,shard:3000")
accept("shards alone", { gres = "gres/shard:3000" }, "vgpu:1,gpumem:3000,shard:3000")
accept("shards and an option of the same", { gres = "shard:3000", spank_job_env = options("mem=3000") }, "vgpu:1,gpumem:3000,shard:3000")
accept("what it became", { gres = "gres/vgpu:1,gres/gpumem:3000,gres/shard:3000" }, "vgpu:1,gpumem:3000,shard:3000")
accept("other GRES stay", { gres = "gres/nic:1,gres/shard:3000,gres/ssd:2" }, "nic:1,vgpu:1,gpumem:3000,shard:3000,ssd:2")
-- 10 % of the largest GPU; 60 % of its time takes as much of its shards, and no small GPU has them.
accept("a share of time", { gres = "vgpu:1,gpumem:3000,gpucores:10" }, "vgpu:1,gpumem:3000,gpucores:10,shard:14377")
accept("a large share of time", { gres = "vgpu:1,gpumem:3000,gpucores:60" }, "vgpu:1,gpumem:3000,gpucores:60,shard:86262", "a[1-9],m1")
accept("half of the time, of which two have room", { gres = "vgpu:1,gpumem:3000,gpucores:50" }, "vgpu:1,gpumem:3000,gpucores:50,shard:71885", "a[1-9],m1")
accept("… on small GPUs", { gres = "vgpu:1,gpumem:3000,gpucores:60", spank_job_env = options("gpu=a100") }, "vgpu:1,gpumem:3000,gpucores:60,shard:24576", "h[1-4],m1")
accept("a GPU to itself", { gres = "vgpu:1", spank_job_env = options("mem=100%;cores=100") }, "vgpu:1,gpumem:143771,gpucores:100,shard:143771", "a[1-9],m1")
-- Slurm takes any GPU of a node, so that each must do.
accept("what the smaller GPUs do not hold", { gres = "shard:50000" }, "vgpu:1,gpumem:50000,shard:50000", "a[1-9],m1")
accept("an option for a kind", { gres = "shard:3000", spank_job_env = options("gpu=!a100") }, "vgpu:1,gpumem:3000,shard:3000", "a[1-9],m1")
accept("whole GPUs", { tres_per_job = "gres/gpu:2" }, nil)
accept("whole GPUs by node", { gres = "gres/gpu:h200:1,gres/nic:1" }, "gres/gpu:h200:1,gres/nic:1")
accept("nothing", {}, nil)

refuse("several", { gres = "vgpu:2,gpumem:6000" },
	"vgpu: --gres=vgpu:2: here Slurm gives a job parts of one GPU on each node: use vgpu:1, with more nodes for more slices, or --gpus=2 for whole GPUs")
refuse("a place", { gres = "vgpu:1,gpumem:10", spank_job_env = options("place=spread") }, "vgpu: --vgpu-place=spread: here Slurm picks the GPU: leave it out")
refuse("a UUID by default", { gres = "vgpu:1,gpumem:10", spank_job_env = { [0] = "VGPU_DEFAULTS=uuid=GPU-1" } }, "vgpu: VGPU_UUID: here Slurm picks the GPU: unset it")
accept("a place by default, which does nothing", { gres = "vgpu:1,gpumem:10", spank_job_env = { [0] = "VGPU_DEFAULTS=place=spread" } }, "vgpu:1,gpumem:10,shard:10")
refuse("a UUID", { gres = "vgpu:1,gpumem:10", spank_job_env = options("uuid=GPU-1") }, "vgpu: --vgpu-uuid=GPU-1: here Slurm picks the GPU: leave it out")
refuse("both", { gres = "gres/gpu:1,gres/shard:10" }, "vgpu: --gres=gpu:1: shard is of slices, and this asks for whole GPUs: ask for one of the two")
refuse("both, by other options", { gres = "gres/shard:10", tres_per_job = "gres/gpu:1" },
	"vgpu: --gpus=1: shard is of slices, and this asks for whole GPUs: ask for one of the two")
refuse("whole GPUs with an option", { tres_per_job = "gres/gpu:1", spank_job_env = options("mem=3000") },
	"vgpu: --vgpu-mem=3000: this is of slices, and the job asks for whole GPUs: use --gres=vgpu:N instead of these")
refuse("shards by task", { tres_per_task = "cpu:1,gres/shard:3000" }, "vgpu: shard per task: shard is counted per node only: use --gres=shard:N")
refuse("shards of a site that counts tokens", { gres = "gres/shard:1" },
	"vgpu: --gres=shard:1: a shard is one MiB here, and a CUDA context takes more than 1: write the MiB of the slice, as in shard:3000")
accept("few, and meant", { gres = "gres/shard:256" }, "vgpu:1,gpumem:256,shard:256")
refuse("too few", { gres = "vgpu:1,gpumem:3000,shard:10" }, "vgpu: --gres=shard:10: a slice of 3000 MiB and 0 % has shard:3000: leave shard out")
refuse("two sizes", { gres = "shard:3000", spank_job_env = options("mem=2000") },
	"vgpu: --vgpu-mem=2000 and --gres=shard:3000 differ: for 1 slice of 2000 MiB write gpumem:2000, or give one of the two")
refuse("too large", { gres = "shard:143772" }, "vgpu: --gres=shard:143772: no GPU has 143772 MiB: the most is 143771 MiB (h200)")
for _, value in ipairs({ "0", "3K", "h200:3000", "-1", "", "3000x" }) do
	refuse("shard:" .. value, { gres = "shard:" .. value },
		"vgpu: --gres=shard:" .. value .. ": a shard is one MiB here: want the MiB of the slice as a number, as in shard:3000")
end
refuse("a node to itself", { gres = "shard:3000", shared = 0 },
	"vgpu: --exclusive: Slurm gives such a job every GPU of its nodes, and finds no shards beside them: leave it out, or ask for --gpus=1")

-- A change of a pending job keeps its shards right.
local function modify(text, was) return { gres = text }, { gres = was or "gres/vgpu:1,gres/gpumem:3000,gres/gpucores:10,gres/shard:14377" } end
local job, record = modify("gpumem:20000")
check("modify code", vgpu.job_modify(job, record, {}, 1000), slurm.SUCCESS)
check("modify", job.gres, "vgpu:1,gpumem:20000,gpucores:10,shard:20000")
job, record = modify("shard:4000", "gres/vgpu:1,gres/gpumem:3000,gres/shard:3000")
check("modify shards code", vgpu.job_modify(job, record, {}, 1000), slurm.SUCCESS)
check("modify shards", job.gres, "vgpu:1,gpumem:4000,shard:4000")

-- Some nodes with shards and some without: the table alone sends slices to those with, a function decides by the job.
local both = [[return {nodes={ {names="h1", gpus=2, mem_mib=143771, type="h200", shards=200000}, {names="n1", gpus=2, mem_mib=200000, type="b200"} }}]]
vgpu = module_of(both)
accept("by the table", { gres = "vgpu:1,gpumem:10,gpucores:50" }, "vgpu:1,gpumem:10,gpucores:50,shard:100000")
vgpu.shards = function(asked) return asked.partition == "shard" end
accept("by the job", { gres = "vgpu:1,gpumem:150000", partition = "other" }, "vgpu:1,gpumem:150000")
accept("by the job, with", { gres = "vgpu:1,gpumem:10", partition = "shard" }, "vgpu:1,gpumem:10,shard:10")
accept("shards of somebody else", { gres = "gres/shard:2", partition = "other" }, "gres/shard:2")
-- Nor can a job be moved to where it would have to be counted otherwise.
local function move(what, partition, record, message)
	said = nil
	check(what .. " code", vgpu.job_modify({ partition = partition }, record, {}, 1000), message and 2072 or slurm.SUCCESS)
	check(what .. " says", said, message)
end
move("to shards", "shard", { partition = "other", gres = "gres/vgpu:1,gres/gpumem:10" },
	"vgpu: Partition=shard: the job has vgpu, which is counted with shards there and without them here: submit the job anew")
move("away from shards", "other", { partition = "shard", gres = "gres/vgpu:1,gres/gpumem:10,gres/shard:10" },
	"vgpu: Partition=other: the job has vgpu, which is counted without shards there and with them here: submit the job anew")
move("among those without", "third", { partition = "other", gres = "gres/vgpu:1,gres/gpumem:10" })
move("nothing of ours", "shard", { partition = "other", gres = "gres/nic:1" })
local joins = { partition = "shard", gres = "gpumem:10" }
check("moved and changed code", vgpu.job_modify(joins, { partition = "other" }, {}, 1000), slurm.SUCCESS)
check("moved and changed", joins.gres, "vgpu:1,gpumem:10,shard:10")
vgpu = module_of([[return {nodes={ {names="h1", gpus=2, mem_mib=143771, type="h200"} }}]])
accept("a table without shards", { gres = "vgpu:1,gpumem:10" }, "vgpu:1,gpumem:10")
vgpu = module_of()
accept("no table", { gres = "vgpu:1,gpumem:10" }, "vgpu:1,gpumem:10")
vgpu.shards = true
accept("no table, and said so", { gres = "vgpu:1,gpumem:10" }, "vgpu:1,gpumem:10,shard:10")
refuse("a share without a table", { gres = "vgpu:1,gpumem:10,gpucores:90" },
	"vgpu: --gres=gpucores:90: this cluster has no table of its GPUs to take a share of: leave it out")

-- Steps, which only the user's machine sees.
local env = {}
local real_getenv = os.getenv
os.getenv = function(name) return env[name] end
local function step(gres, kind)
	local asked = { gres = gres, type = kind or "srun" }
	check("step " .. tostring(gres), vgpu.cli_filter(asked), slurm.SUCCESS)
	return asked.gres
end
vgpu = module_of()
check("outside of a job", step("gpumem:1000"), "gpumem:1000")
env = { SLURM_JOB_ID = "5" }
check("in a job without shards", step("gpumem:1000"), "gpumem:1000")
env = { SLURM_JOB_ID = "5", SLURM_SHARDS_ON_NODE = "57509" }
check("memory", step("gres:gpumem:1000"), "gpumem:1000,shard:1000")
check("no memory", step("vgpu:1,gpucores:20"), "vgpu:1,gpucores:20,shard:57509")
check("shards", step("shard:1000"), "shard:1000")
check("none", step("none"), "none")
check("a job of its own", step("gpumem:1000", "sbatch"), "gpumem:1000")
env = { SLURM_JOB_ID = "5" }
vgpu.shards = true
check("where that is not known", step("gpumem:1000"), "gpumem:1000,shard:1000")
check("… nor how many", step("vgpu:1"), "vgpu:1")
os.getenv = real_getenv

print(string.format("%d checks, %d failures", checks, failures))
os.exit(failures == 0 and 0 or 1)
