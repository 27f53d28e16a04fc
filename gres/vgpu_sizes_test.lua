-- SPDX-FileCopyrightText: The slurm-vgpu authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Tests of sizes in vgpu.lua: `lua5.1 vgpu_sizes_test.lua FOLDER`, where FOLDER is for scratch files. lua_test.go runs it.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local scratch = assert(arg[1], "usage: lua vgpu_sizes_test.lua FOLDER")
local failures, checks = 0, 0

local said, logged
slurm = {
	SUCCESS = 0, ERROR = -1,
	log_user = function(format, ...) said = string.format(format, ...) end,
	log_error = function(format, ...) logged = string.format(format, ...) end,
}

local function check(what, got, want)
	checks = checks + 1
	if got == want then return end
	failures = failures + 1
	print(string.format("FAIL %s:\n  got  %s\n  want %s", what, tostring(got), tostring(want)))
end

local function module_of(sizes, nodes)
	local vgpu = dofile(here .. "vgpu.lua")
	vgpu.cluster_file = scratch .. "/sizes.lua"
	local file = assert(io.open(vgpu.cluster_file, "w"))
	file:write("return {" .. (sizes and "sizes = " .. sizes .. ", " or "") .. "nodes = {" .. nodes .. "}}")
	file:close()
	return vgpu
end

local named = '{ ["half"] = { mem_percent = 50, cores = 50 }, ["small"] = { mem_mib = 8192 }, ["fast"] = { cores = 40 }, ["a-2"] = { mem_mib = 100, cores = 0 }, ["vast"] = { mem_mib = 200000 } }'
local h200, a100 = '{ names = "n[1-4]", gpus = 2, mem_mib = 143771, type = "h200"%s },', '{ names = "a[1-9]", gpus = 8, mem_mib = 40960, type = "a100"%s },'
local counts = module_of(named, h200:format("") .. a100:format(""))
local sharded = module_of(named, h200:format(", shards = 143771"))

local function job(gres, options, defaults)
	local env = { [0] = options and "VGPU_REQUEST=" .. options or "X=1", defaults and "VGPU_DEFAULTS=" .. defaults }
	return { gres = gres, spank_job_env = env }
end

-- Each release of Slurm writes the list in its own way.
local function accept(what, vgpu, gres, options, defaults, want, excluded)
	for _, prefix in ipairs({ "", "gres:", "gres/" }) do
		local desc = job(prefix .. gres:gsub(",", "," .. prefix), options, defaults)
		said = nil
		check(what .. " code", vgpu.job_submit(desc, {}, 1000), slurm.SUCCESS)
		check(what .. " says", said, nil)
		check(what .. " GRES", desc.gres, want)
		check(what .. " excludes", desc.exc_nodes, excluded)
	end
end

local function refuse(what, vgpu, gres, options, message)
	local desc = job(gres, options)
	said = nil
	check(what .. " code", vgpu.job_submit(desc, {}, 1000), 2072)
	check(what, said, message)
	check(what .. " leaves the GRES", desc.gres, gres)
end

counts = module_of(named, h200:format("") .. a100:format(""))
accept("a half", counts, "vgpu:half:1", nil, nil, "vgpu:1,gpumem:71885,gpucores:50", "a[1-9]")
accept("a half without a count", counts, "vgpu:half", nil, nil, "vgpu:1,gpumem:71885,gpucores:50", "a[1-9]")
accept("an equals sign", counts, "vgpu:half=2", nil, nil, "vgpu:2,gpumem:143770,gpucores:100", "a[1-9]")
accept("a half of a type", counts, "vgpu:half:2", "gpu=a100", nil, "vgpu:2,gpumem:40960,gpucores:100", "n[1-4]")
accept("memory alone", counts, "vgpu:small:1", nil, nil, "vgpu:1,gpumem:8192")
accept("memory alone, and an option for time", counts, "vgpu:small:2", "cores=30", nil, "vgpu:2,gpumem:16384,gpucores:60")
accept("time alone, and memory in GRES", counts, "vgpu:fast:1,gpumem:3000", nil, nil, "vgpu:1,gpumem:3000,gpucores:40")
accept("no cap", counts, "vgpu:a-2:1", nil, "mem=3000;cores=30", "vgpu:1,gpumem:100")
accept("before defaults", counts, "vgpu:half:1", nil, "mem=3000;cores=30", "vgpu:1,gpumem:71885,gpucores:50", "a[1-9]")
accept("before a default share, which the node leaves out by this order", counts, "vgpu:half:1", nil, "mem=10%", "gpumem:71885,vgpu:1,gpucores:50", "a[1-9]")
accept("beside other GRES", counts, "license:1,vgpu:small:1,gpu:h200:2", nil, nil, "license:1,vgpu:1,gpumem:8192,gpu:h200:2")

refuse("an unknown one", counts, "vgpu:huge:1", nil, "vgpu: --gres=vgpu:huge:1: there is no size huge: the sizes are a-2, fast, half, small, vast")
refuse("another case", counts, "vgpu:Half:1", nil, "vgpu: --gres=vgpu:Half:1: there is no size Half: the sizes are a-2, fast, half, small, vast")
refuse("a type", counts, "vgpu:H200:2", nil, "vgpu: --gres=vgpu:H200:2: vgpu has no types: use --gres=vgpu:2 --vgpu-gpu=H200")
refuse("none of it", counts, "vgpu:half:0", nil, "vgpu: --gres=vgpu:half:0: that is no slice: ask for one or more, as in vgpu:1, or leave it out")
refuse("two of them", counts, "vgpu:half:1,vgpu:small:1", nil, "vgpu: --gres=vgpu:small:1: vgpu is given twice")
refuse("memory twice", counts, "vgpu:half:1", "mem=3000", "vgpu: --gres=vgpu:half:1 and --vgpu-mem=3000: the size says this already: give one of the two")
refuse("the same memory twice", counts, "vgpu:half:1", "mem=50%", "vgpu: --gres=vgpu:half:1 and --vgpu-mem=50%: the size says this already: give one of the two")
refuse("time twice", counts, "vgpu:half:1", "cores=0", "vgpu: --gres=vgpu:half:1 and --vgpu-cores=0: the size says this already: give one of the two")
refuse("memory in GRES", counts, "vgpu:half:1,gpumem:3000", nil, "vgpu: --gres=vgpu:half:1 and --gres=gpumem:3000: the size says this already: give one of the two")
refuse("time in GRES", counts, "gpucores:50,vgpu:half:1", nil, "vgpu: --gres=vgpu:half:1 and --gres=gpucores:50: the size says this already: give one of the two")
refuse("more than any GPU", counts, "vgpu:vast:2", nil, "vgpu: --gres=vgpu:vast:2: no GPU has 200000 MiB for each of 2 slices: the most is 143771 MiB (h200)")
refuse("more than any node", counts, "vgpu:half:3", nil, "vgpu: --gres=vgpu:half:3 with 71885 MiB each: no node has 3 such GPUs: the most is 2 (n[1-4])")

check("a change", (function()
	local change = { gres = "vgpu:half:1" }
	counts.job_modify(change, { gres = "gres:vgpu:2,gres:gpumem:6000,gres:gpucores:60" }, {}, 1000)
	return change.gres
end)(), "vgpu:1,gpumem:71885,gpucores:50")
check("a change of a job that is held to a type", (function()
	local change = { gres = "vgpu:half:1" }
	counts.job_modify(change, { gres = "gres:vgpu:1,gres:gpumem:4096", spank_job_env = { [0] = "VGPU_REQUEST=gpu=a100" } }, {}, 1000)
	return change.gres
end)(), "vgpu:1,gpumem:20480,gpucores:50")
check("a change beyond that type", counts.job_modify({ gres = "vgpu:1,gpumem:50000" }, { gres = "vgpu:1,gpumem:4096", spank_job_env = { [0] = "VGPU_DEFAULTS=gpu=a100" } }, {}, 1000), 2072)
check("a change beyond that type says", said, "vgpu: Gres=gpumem:50000: no GPU that VGPU_GPU=a100 admits has 50000 MiB: the most is 40960 MiB (a100)")
check("a change beyond the options", counts.job_modify({ gres = "vgpu:half:1" }, { gres = "vgpu:1,gpumem:3000", spank_job_env = { [0] = "VGPU_REQUEST=mem=3000" } }, {}, 1000), 2072)
check("a change beyond the options says", said, "vgpu: Gres=vgpu:half:1: the job was submitted with --vgpu-mem=3000, which holds each slice to 3000 MiB: the most is gpumem:3000")

sharded = module_of(named, h200:format(", shards = 143771"))
accept("a half by shards", sharded, "vgpu:half:1", nil, nil, "vgpu:1,gpumem:71885,gpucores:50,shard:71885")
accept("time by shards", sharded, "vgpu:fast:1,gpumem:3000", nil, nil, "vgpu:1,gpumem:3000,gpucores:40,shard:57508")
refuse("two by shards", sharded, "vgpu:half:2", nil, "vgpu: --gres=vgpu:half:2: here Slurm gives a job parts of one GPU on each node: use vgpu:1, with more nodes for more slices, or --gpus=2 for whole GPUs")
refuse("shards beside a size", sharded, "vgpu:half:1,shard:3000", nil, "vgpu: --gres=vgpu:half:1 and --gres=shard:3000: the size says this already: give one of the two")

-- A table whose sizes are none is none.
for sizes, why in pairs({
	['{ half = { mem_percent = 101 } }'] = 'sizes["half"].mem_percent is not mem_mib, mem_percent or cores, or not within their bounds',
	['{ half = { mem_mib = 1.5 } }'] = 'sizes["half"].mem_mib is not mem_mib, mem_percent or cores, or not within their bounds',
	['{ half = { mem_mib = 0 } }'] = 'sizes["half"].mem_mib is not mem_mib, mem_percent or cores, or not within their bounds',
	['{ half = { cores = "50" } }'] = 'sizes["half"].cores is not mem_mib, mem_percent or cores, or not within their bounds',
	['{ half = { mem = "50%" } }'] = 'sizes["half"].mem is not mem_mib, mem_percent or cores, or not within their bounds',
	['{ half = 50 }'] = 'sizes["half"] is no size with a name of small letters',
	['{ ["2"] = {} }'] = 'sizes["2"] is no size with a name of small letters',
	['{ {} }'] = 'sizes["1"] is no size with a name of small letters',
	['{ h200 = { mem_mib = 1 } }'] = 'sizes["h200"]: a type of GPU is called so',
	['"half"'] = "sizes is no table",
}) do
	local vgpu = module_of(sizes, h200:format(""))
	logged = nil
	vgpu.job_submit(job("vgpu:1,gpumem:10"), {}, 1000)
	check(sizes, logged, "vgpu: " .. vgpu.cluster_file .. ": " .. why)
end

-- Every srun makes a step of its --gres, which job_submit does not see. Other commands leave a size to it.
local environment = {}
os.getenv = function(name) return environment[name] end
local function filter(what, vgpu, options, want, says)
	logged = nil
	check(what .. " code", vgpu.cli_filter(options), says and 2072 or slurm.SUCCESS)
	check(what .. " gres", options.gres, want)
	check(what .. " says", logged, says)
end
counts = module_of(named, h200:format("") .. a100:format(""))
filter("sbatch", counts, { gres = "vgpu:half:1", type = "sbatch" }, "vgpu:half:1")
filter("srun", counts, { gres = "license:1,vgpu:half:2", type = "srun" }, "license:1,vgpu:2,gpumem:143770,gpucores:100")
filter("srun of a type", counts, { gres = "vgpu:half", type = "srun", spank = { vgpu = { ["vgpu-gpu"] = "a100", ["vgpu-mem"] = "unset" } } }, "vgpu:1,gpumem:20480,gpucores:50")
filter("srun of no type", counts, { gres = "vgpu:half", type = "srun", spank = { vgpu = { ["vgpu-gpu"] = "v100" } } }, "vgpu:1,gpumem:71885,gpucores:50")
filter("srun of memory alone", counts, { gres = "vgpu:small:1,gpucores:5", type = "srun" }, "vgpu:1,gpumem:8192,gpucores:5")
filter("srun without a cap", counts, { gres = "vgpu:a-2:1", type = "srun" }, "vgpu:1,gpumem:100,gpucores:0")
filter("srun without a size", counts, { gres = "vgpu:1", type = "srun" }, "vgpu:1")
filter("an unknown size", counts, { gres = "vgpu:huge:1", type = "srun" }, "vgpu:huge:1", "vgpu: --gres=vgpu:huge:1: there is no size huge: the sizes are a-2, fast, half, small, vast")
filter("memory twice", counts, { gres = "vgpu:half:1", type = "srun", spank = { vgpu = { ["vgpu-mem"] = "3000" } } }, "vgpu:half:1",
	"vgpu: --gres=vgpu:half:1 and --vgpu-mem=3000: the size says this already: give one of the two")
local bare = dofile(here .. "vgpu.lua")
bare.cluster_file = scratch .. "/missing.lua"
filter("no table", bare, { gres = "vgpu:half:1", type = "srun" }, "vgpu:half:1",
	"vgpu: --gres=vgpu:half:1: this host has no table of sizes for srun: use sbatch or salloc, or --vgpu-mem and --vgpu-cores")
environment.SLURM_JOB_ID, environment.SLURM_SHARDS_ON_NODE = "7", "71885"
filter("a step with shards", module_of(named, h200:format(", shards = 143771")), { gres = "vgpu:small:1", type = "srun" }, "vgpu:1,gpumem:8192,shard:8192")

print(string.format("%d checks, %d failures", checks, failures))
os.exit(failures == 0 and 0 or 1)
