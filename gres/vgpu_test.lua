-- SPDX-FileCopyrightText: The slurm-vgpu authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Tests of vgpu.lua with a slurm table of their own: `lua5.1 vgpu_test.lua FOLDER`, where FOLDER is
-- for scratch files. lua_test.go runs it. What a real slurmctld passes and takes was looked up in one:
-- "gres:vgpu:1" read from job_desc.gres, plain names written to it, spank_job_env from key 0.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local scratch = assert(arg[1], "usage: lua vgpu_test.lua FOLDER")
local failures, count = 0, 0

local said, logged
slurm = {
	SUCCESS = 0, ERROR = -1,
	log_user = function(format, ...) said = string.format(format, ...) end,
	log_error = function(format, ...) logged = string.format(format, ...) end,
}
local vgpu = dofile(here .. "vgpu.lua")

local function check(what, got, want)
	count = count + 1
	if got ~= want then
		failures = failures + 1
		print(string.format("FAIL %s:\n  got  %s\n  want %s", what, tostring(got), tostring(want)))
	end
end

local function write(text)
	local path = scratch .. "/cluster.lua"
	local file = assert(io.open(path, "wb"))
	file:write(text)
	file:close()
	return path
end

-- A fresh module has seen no table yet.
local function with_table(text)
	vgpu = dofile(here .. "vgpu.lua")
	vgpu.cluster_file = text and write(text) or scratch .. "/missing.lua"
end

local NO_VAL = 4294967294
local function job(gres, options, defaults, more)
	local env, i = {}, 0
	for _, entry in ipairs({ options and "VGPU_REQUEST=" .. options or false, defaults and "VGPU_DEFAULTS=" .. defaults or false }) do
		if entry then env[i], i = entry, i + 1 end
	end
	local desc = { gres = gres, spank_job_env = i > 0 and env or nil, het_job_offset = NO_VAL }
	for key, value in pairs(more or {}) do desc[key] = value end
	return desc
end

local h200s = 'return {slices_per_gpu=10, nodes={{names="n[1-4]", gpus=2, mem_mib=143771, type="h200"}}}'
local mixed = [[return {slices_per_gpu=4, nodes={
	{names="n[1-4]", gpus=2, mem_mib=143771, type="h200"},
	{names="a[1-9]", gpus=8, mem_mib=40960, type="a100"},
	{names="m1", gpus=1, mem_mib=143771, type="h200"},
	{names="m1", gpus=1, mem_mib=23034, type="l4"},
}}]]

-- Accepted: GRES, options, defaults → GRES, excluded nodes. Every row is tried in the three ways of
-- writing GRES, and what came out is put in again and must stay the same.
local function accept(what, gres, options, defaults, want, exclude, more)
	for _, prefix in ipairs({ "", "gres:", "gres/" }) do
		local function written(text) return prefix .. text:gsub(",", "," .. prefix) end
		local desc = job(written(gres), options, defaults, more)
		said = nil
		check(what .. " (" .. prefix .. ") code", vgpu.job_submit(desc, {}, 1000), slurm.SUCCESS)
		check(what .. " (" .. prefix .. ") says", said, nil)
		check(what .. " (" .. prefix .. ") GRES", desc.gres, want)
		check(what .. " (" .. prefix .. ") excludes", desc.exc_nodes, exclude)
		local again = job(written(desc.gres), options, defaults, more)
		check(what .. " (" .. prefix .. ") again code", vgpu.job_submit(again, {}, 1000), slurm.SUCCESS)
		check(what .. " (" .. prefix .. ") again GRES", again.gres, want)
	end
end

local function refuse(what, gres, options, defaults, want, more)
	local desc = job(gres, options, defaults, more)
	said = nil
	check(what .. " code", vgpu.job_submit(desc, {}, 1000), 2072)
	check(what, said, want)
	check(what .. " leaves the GRES", desc.gres, gres)
end

local function untouched(what, desc)
	local before, writes = desc.gres, 0
	local seen = setmetatable({}, {
		__index = desc,
		__newindex = function() writes = writes + 1 end,
	})
	said = nil
	check(what .. " code", vgpu.job_submit(seen, {}, 1000), slurm.SUCCESS)
	check(what .. " says", said, nil)
	check(what .. " writes", writes, 0)
	check(what .. " GRES", desc.gres, before)
end

with_table(h200s)
accept("default memory", "vgpu:1", nil, nil, "vgpu:1,gpumem:14377")
accept("count left out", "vgpu", nil, nil, "vgpu:1,gpumem:14377")
accept("equals sign", "vgpu=2", nil, nil, "vgpu:2,gpumem:28754")
accept("options", "vgpu:1", "mem=3000;cores=30", nil, "vgpu:1,gpumem:3000,gpucores:30")
accept("per slice to total", "vgpu:2", "mem=3000;cores=30", nil, "vgpu:2,gpumem:6000,gpucores:60")
accept("all in GRES", "vgpu:2,gpumem:6000,gpucores:60", nil, nil, "vgpu:2,gpumem:6000,gpucores:60")
accept("gpumem alone", "gpumem:3000", nil, nil, "vgpu:1,gpumem:3000")
accept("gpumem alone and cores", "gpumem:3000", "cores=30", nil, "vgpu:1,gpumem:3000,gpucores:30")
accept("K as Slurm prints it", "vgpu:1,gpumem:8K", nil, nil, "vgpu:1,gpumem:8192")
accept("uneven totals", "vgpu:2,gpumem:6001,gpucores:61", "mem=3000;cores=30", nil, "vgpu:2,gpumem:6001,gpucores:61")
accept("percent", "vgpu:2", "mem=25%", nil, "vgpu:2,gpumem:71884")
accept("percent and the same in GRES", "vgpu:2,gpumem:71884", "mem=25%", nil, "vgpu:2,gpumem:71884")
accept("decimal percent", "vgpu:1", "mem=0.0001%", nil, "vgpu:1,gpumem:1")
accept("no cap in words", "vgpu:1", "mem=3000;cores=0", nil, "vgpu:1,gpumem:3000")
accept("gpucores:0", "vgpu:1,gpucores:0", "mem=3000", nil, "vgpu:1,gpumem:3000")
accept("the least share of each", "vgpu:2,gpumem:2000,gpucores:2", nil, nil, "vgpu:2,gpumem:2000,gpucores:2")
accept("a GPU to itself", "vgpu:1", "mem=100%;cores=100", nil, "vgpu:1,gpumem:143771,gpucores:100")
accept("other GRES stay", "license:1,vgpu:1,gpu:h200:2,gpumem:3000,disk", nil, nil, "license:1,vgpu:1,gpumem:3000,gpu:h200:2,disk")
accept("defaults", "vgpu:2", nil, "mem=3000;cores=30", "vgpu:2,gpumem:6000,gpucores:60")
accept("options before defaults", "vgpu:1", "mem=5000;cores=0", "mem=3000;cores=30", "vgpu:1,gpumem:5000")
accept("GRES before defaults", "vgpu:1,gpumem:5000,gpucores:50", nil, "mem=3000;cores=30", "vgpu:1,gpumem:5000,gpucores:50")
accept("GRES before a default share", "vgpu:2,gpumem:50000", nil, "mem=10%;cores=30", "gpumem:50000,vgpu:2,gpucores:60")
accept("GRES before a default share, the other way round", "gpumem:50000,vgpu:1", nil, "mem=10%", "gpumem:50000,vgpu:1")
accept("GRES of memory alone before a default share", "gpumem:50000", nil, "mem=10%", "gpumem:50000,vgpu:1")
do
	local desc = job("vgpu:1,gpucores:30", nil, "mem=10%")
	check("a default share where no memory is typed", vgpu.job_submit(desc, {}, 1000), slurm.SUCCESS)
	check("its GRES are in the usual order", desc.gres, "vgpu:1,gpumem:14377,gpucores:30")
end
accept("GRES before a default in MiB", "gpumem:50000,vgpu:1", nil, "mem=3000", "vgpu:1,gpumem:50000")
accept("GRES that are the option's share", "gpumem:35942,vgpu:1", "mem=25%", "mem=10%", "vgpu:1,gpumem:35942")
accept("malformed defaults", "vgpu:1", nil, "mem=8G", "vgpu:1,gpumem:14377")
accept("options without a size", "vgpu:1", "place=spread;policy=elastic;priority=batch;uuid=GPU-1b2c3d4e,!GPU-00000000", nil, "vgpu:1,gpumem:14377")
accept("type in any case", "vgpu:1", "gpu=H200", nil, "vgpu:1,gpumem:14377")

with_table(mixed)
accept("smallest GPU's share, all nodes", "vgpu:1", nil, nil, "vgpu:1,gpumem:5758")
accept("nodes that hold it only", "vgpu:1", "mem=100000", nil, "vgpu:1,gpumem:100000", "a[1-9]")
accept("two of that size on one node", "vgpu:2", "mem=100000", nil, "vgpu:2,gpumem:200000", "a[1-9],m1")
accept("eight GPUs", "vgpu:8", "mem=1000", nil, "vgpu:8,gpumem:8000", "n[1-4],m1")
accept("type", "vgpu:1", "mem=25%;gpu=a100", nil, "vgpu:1,gpumem:10240", "n[1-4],m1")
accept("type excluded", "vgpu:1", "mem=50%;gpu=!h200", nil, "vgpu:1,gpumem:20480", "n[1-4]")
accept("percent of the largest", "vgpu:2", "mem=25%", nil, "vgpu:2,gpumem:71884")
local excluded = job("vgpu:1", "mem=100000", nil, { exc_nodes = "x7" })
vgpu.job_submit(excluded, {}, 1000)
check("the user's exclusions stay", excluded.exc_nodes, "x7,a[1-9]")
local listed = job("vgpu:2,gpumem:200000", nil, nil, { req_nodes = "a3" })
check("a node is named", vgpu.job_submit(listed, {}, 1000), slurm.SUCCESS)
check("a node is named: says", said, "vgpu: excluded, because they can never hold 2 slices of 100000 MiB: a[1-9],m1")

refuse("type that nobody has", "vgpu:1", "mem=1;gpu=v100", nil, "vgpu: --vgpu-gpu=v100: this cluster has no such GPU: its types are h200, a100, l4")
refuse("default type that nobody has", "vgpu:1", "mem=1", "gpu=v100", "vgpu: VGPU_GPU=v100: this cluster has no such GPU: its types are h200, a100, l4")
refuse("too wide for the type", "vgpu:3", "mem=1;gpu=h200", nil, "vgpu: --gres=vgpu:3: no node has 3 GPUs that --vgpu-gpu=h200 admits: the most is 2 (n[1-4])")
refuse("too large for the type", "vgpu:1", "mem=50000;gpu=a100", nil, "vgpu: --vgpu-mem=50000: no GPU that --vgpu-gpu=a100 admits has 50000 MiB: the most is 40960 MiB (a100)")
refuse("wide and large", "vgpu:4", "mem=100000", nil, "vgpu: --gres=vgpu:4 with 100000 MiB each: no node has 4 such GPUs: the most is 2 (n[1-4])")

with_table(h200s)
refuse("gpumem:8G", "gres:vgpu:1,gres:gpumem:8G", nil, nil, "vgpu: --gres=gpumem:8G: gpumem counts MiB and takes no unit: write gpumem:8192")
refuse("gpumem:8g", "gpumem:8g", nil, nil, "vgpu: --gres=gpumem:8g: gpumem counts MiB and takes no unit: write gpumem:8192")
refuse("gpumem:3000M", "gpumem:3000M", nil, nil, "vgpu: --gres=gpumem:3000M: gpumem counts MiB and takes no unit: write gpumem:3000")
refuse("gpumem:8GiB", "gpumem=8GiB", nil, nil, "vgpu: --gres=gpumem=8GiB: gpumem counts MiB and takes no unit: write gpumem:8192")
refuse("gpumem:1.5G", "gpumem:1.5G", nil, nil, "vgpu: --gres=gpumem:1.5G: gpumem counts MiB and takes no unit: write gpumem:1536")
refuse("gpumem:2T", "gpumem:2T", nil, nil, "vgpu: --gres=gpumem:2T: gpumem counts MiB and takes no unit: write gpumem:2097152")
for _, value in ipairs({ "8X", "0", "0G", "-5", "abc", "25%", "1.5", "1.G", ".5G", "0.0001G", "1.5.2G", "1.123456789012G", "99999P", "h200:3000" }) do
	refuse("gpumem:" .. value, "vgpu:1,gpumem:" .. value, nil, nil, "vgpu: --gres=gpumem:" .. value .. ": want the MiB of all slices together as a number, as in gpumem:3000")
end
refuse("gpumem without a count", "gpumem", nil, nil, "vgpu: --gres=gpumem: want the MiB of all slices together as a number, as in gpumem:3000")
refuse("long", "gpumem:" .. ("9"):rep(300), nil, nil, "vgpu: --gres=gpumem:" .. ("9"):rep(53) .. "...: want the MiB of all slices together as a number, as in gpumem:3000")
for length, shown in pairs({ [60] = ("9"):rep(53), [61] = ("9"):rep(53) .. "..." }) do
	refuse("as long as is shown", "gpumem:" .. ("9"):rep(length - 7), nil, nil, "vgpu: --gres=gpumem:" .. shown .. ": want the MiB of all slices together as a number, as in gpumem:3000")
end
refuse("control characters", "gpumem:1\27[31m%s", nil, nil, "vgpu: --gres=gpumem:1?[31m%s: want the MiB of all slices together as a number, as in gpumem:3000")
refuse("typed vgpu", "gres:vgpu:h200:2", nil, nil, "vgpu: --gres=vgpu:h200:2: vgpu has no types: use --gres=vgpu:2 --vgpu-gpu=h200")
refuse("typed vgpu without a count", "vgpu:h200", nil, nil, "vgpu: --gres=vgpu:h200: vgpu has no types: use --gres=vgpu:1 --vgpu-gpu=h200")
refuse("type that starts with a digit", "vgpu:4090=2", nil, nil, "vgpu: --gres=vgpu:4090=2: vgpu has no types: use --gres=vgpu:2 --vgpu-gpu=4090")
for _, gres in ipairs({ "vgpu:0", "vgpu=00", "vgpu:0,gpumem:0", "vgpu:0,gpumem:3000" }) do
	refuse("no slice of a job, " .. gres, gres, nil, nil, "vgpu: --gres=" .. gres:match("[^,]+") .. ": that is no slice: ask for one or more, as in vgpu:1, or leave it out")
end
for _, value in ipairs({ "-1", "2K", "1.5", "4097", "" }) do
	refuse("vgpu:" .. value, "vgpu:" .. value, nil, nil, "vgpu: --gres=vgpu:" .. value .. ": want a number of slices from 1, as in vgpu:2")
end
refuse("vgpu twice", "vgpu:1,vgpu:2", nil, nil, "vgpu: --gres=vgpu:2: vgpu is given twice")
refuse("gpucores with a unit", "vgpu:1,gpucores:30%", nil, nil, "vgpu: --gres=gpucores:30%: want the percent of GPU time of all slices together, as in gpucores:30")
accept("exactly the largest GPU", "vgpu:1", "mem=143771", nil, "vgpu:1,gpumem:143771")
accept("exactly the largest GPU, in GRES", "vgpu:2,gpumem:287542", nil, nil, "vgpu:2,gpumem:287542")
refuse("one MiB more than any GPU", "vgpu:1", "mem=143772", nil, "vgpu: --vgpu-mem=143772: no GPU has 143772 MiB: the most is 143771 MiB (h200)")
refuse("more than any GPU", "vgpu:1", "mem=200000", nil, "vgpu: --vgpu-mem=200000: no GPU has 200000 MiB: the most is 143771 MiB (h200)")
refuse("more than any GPU by default", "vgpu:1", nil, "mem=200000", "vgpu: VGPU_MEM=200000: no GPU has 200000 MiB: the most is 143771 MiB (h200)")
refuse("more than any GPU in GRES", "vgpu:1,gpumem:200000", nil, nil, "vgpu: --gres=gpumem:200000: no GPU has 200000 MiB: the most is 143771 MiB (h200)")
refuse("more than any GPU, two slices", "vgpu:2,gpumem:400000", nil, nil, "vgpu: --gres=gpumem:400000: no GPU has 200000 MiB for each of 2 slices: the most is 143771 MiB (h200)")
refuse("more slices than GPUs", "vgpu:3", "mem=1", nil, "vgpu: --gres=vgpu:3: no node has 3 GPUs: the most is 2 (n[1-4])")
refuse("cores above 100", "vgpu:2,gpumem:2,gpucores:201", nil, nil, "vgpu: --gres=gpucores:201: a GPU has 100 % of its time: the most for 2 slices is gpucores:200")
refuse("cores above 100, one slice", "vgpu:1,gpumem:2,gpucores:101", nil, nil, "vgpu: --gres=gpucores:101: a GPU has 100 % of its time: the most for 1 slice is gpucores:100")
refuse("cores below 1", "vgpu:2,gpumem:2,gpucores:1", nil, nil, "vgpu: --gres=gpucores:1: less than 1 % for each of 2 slices: the least is gpucores:2")
refuse("memory below 1", "vgpu:2,gpumem:1", nil, nil, "vgpu: --gres=gpumem:1: less than 1 MiB for each of 2 slices")
refuse("cores without slices", "gpucores:30", nil, nil, "vgpu: --gres=gpucores:30: say how many slices as well, as in --gres=vgpu:1,gpucores:30")
refuse("two memories", "vgpu:2,gpumem:8000", "mem=3000", nil, "vgpu: --vgpu-mem=3000 and --gres=gpumem:8000 differ: for 2 slices of 3000 MiB write gpumem:6000, or give one of the two")
refuse("two memories, percent", "gpumem:8000", "mem=25%", nil, "vgpu: --vgpu-mem=25% and --gres=gpumem:8000 differ: for 1 slice of 35942 MiB write gpumem:35942, or give one of the two")
refuse("two shares", "vgpu:1,gpumem:1,gpucores:50", "cores=30", nil, "vgpu: --vgpu-cores=30 and --gres=gpucores:50 differ: for 1 slice of 30 % write gpucores:30, or give one of the two")
refuse("no cap and a share", "vgpu:1,gpumem:1,gpucores:50", "cores=0", nil, "vgpu: --vgpu-cores=0 and --gres=gpucores:50 differ: for 1 slice of 0 % write gpucores:0, or give one of the two")
refuse("memory without vgpu", nil, "mem=3000", nil, "vgpu: --vgpu-mem=3000: say how many slices as well, as in --gres=vgpu:1")
refuse("memory with other GRES", "gpu:1", "mem=3000", nil, "vgpu: --vgpu-mem=3000: say how many slices as well, as in --gres=vgpu:1")
refuse("type without vgpu", nil, "gpu=h200", nil, "vgpu: --vgpu-gpu=h200: say how many slices as well, as in --gres=vgpu:1")
for _, offset in ipairs({ 0, 1 }) do
	refuse("component " .. offset .. " without vgpu", nil, "mem=3000", nil, "vgpu: --vgpu-mem=3000: say how many slices as well, as in --gres=vgpu:1", { het_job_offset = offset })
end
for _, text in ipairs({ "mem=8G", "mem=0", "mem=101%", "mem=1e9", "mem=99999999999999", "cores=101", "cores=-1", "place=up", "policy=x", "priority=high", "gpu=a;b=c", "uuid=%", "mem=1;mem=2", "raw=1", "nonsense", "mem=;" }) do
	refuse("forged request " .. text, "vgpu:1", text, nil, "vgpu: VGPU_REQUEST=" .. text .. ": this request is malformed: use the --vgpu options")
end
refuse("huge request", "vgpu:1", "gpu=" .. ("x"):rep(3000), nil, "vgpu: VGPU_REQUEST=gpu=" .. ("x"):rep(56) .. "...: this request is malformed: use the --vgpu options")
refuse("longer than anything is read", "vgpu:1,gpumem:3000" .. (" "):rep(4079), nil, nil, "vgpu: --gres: 4097 characters: at most 4096 are read")
accept("as long as may be", "vgpu:1,gpumem:3000" .. (" "):rep(4000), nil, nil, "vgpu:1,gpumem:3000")
refuse("long TRES", nil, nil, nil, "vgpu: TRES per job: 4101 characters: at most 4096 are read", { tres_per_job = "vgpu:" .. ("1"):rep(4096) })
untouched("other GRES of any length", job("gpu:" .. ("x"):rep(5000)))
for _, per in ipairs({ "job", "socket", "task" }) do
	for _, text in ipairs({ "gres:vgpu:1", "gres/vgpu:1", "cpu:1,gres/gpumem=5", "gres/gpucores:1" }) do
		local found = text:match("vgpu") or text:match("gpumem") or "gpucores"
		refuse(text .. " per " .. per, nil, nil, nil, "vgpu: " .. found .. " per " .. per .. ": vgpu is counted per node only: use --gres=vgpu:N", { ["tres_per_" .. per] = text })
	end
end
-- The message has the option as it was typed, not the canonical form.
local desc = job("vgpu:1", "mem=204800")
desc.spank_job_env[1] = "VGPU_TYPED=cores=30;mem=200G"
vgpu.job_submit(desc, {}, 1000)
check("as typed", said, "vgpu: --vgpu-mem=200G: no GPU has 204800 MiB: the most is 143771 MiB (h200)")

for _, twice in ipairs({ "VGPU_REQUEST=mem=1000", "VGPU_TYPED=mem=1000", "SPANK_VGPU_TYPED=mem=1000", "VGPU_DEFAULTS=place=pack" }) do
	desc = job("vgpu:1", "mem=1000", "place=pack")
	desc.spank_job_env[#desc.spank_job_env + 1], desc.spank_job_env[#desc.spank_job_env + 2] = "VGPU_TYPED=mem=1000", twice
	vgpu.job_submit(desc, {}, 1000)
	check(twice .. " twice", said, "vgpu: " .. twice:match("VGPU_%u+") .. " is there more than once: use the --vgpu options")
end

untouched("no GRES", job())
untouched("other GRES", job("gres:gpu:h200:2,gres:shard:3"))
untouched("a type named like us", job("gres:gpu:vgpu:1"))
untouched("names that contain ours", job("gres:xvgpu:1,gres:gpumemory:5"))
untouched("GRES none", job("none"))
untouched("other options", { spank_job_env = { [0] = "_SLURM_SPANK_OPTION_pyxis_container_image=x", "FOO=bar" } })
untouched("defaults alone", job(nil, nil, "mem=3000"))
untouched("bad defaults alone", job(nil, nil, "rubbish"))
untouched("--gpus", { tres_per_job = "gres:gpu:2", tres_per_task = "cpu:1,gres/gpu:1" })

-- Without a table sizes are not checked, and what needs one is refused.
with_table(nil)
accept("no table", "vgpu:9", "mem=999999", nil, "vgpu:9,gpumem:8999991")
accept("the most MiB", "vgpu:1,gpumem:17179869184", nil, nil, "vgpu:1,gpumem:17179869184")
accept("the most in the plugin's form", "vgpu:1", "mem=17179869184", nil, "vgpu:1,gpumem:17179869184")
accept("the most with Slurm's suffix", "vgpu:1,gpumem:16777216K", nil, nil, "vgpu:1,gpumem:17179869184")
accept("the most slices", "vgpu:4096", "mem=1", nil, "vgpu:4096,gpumem:4096")
for _, text in ipairs({ "17179869185", "16777217K", "99999999999", "100000000000" }) do
	refuse("more MiB than any node: " .. text, "vgpu:1,gpumem:" .. text, nil, nil,
		"vgpu: --gres=gpumem:" .. text .. ": want the MiB of all slices together as a number, as in gpumem:3000")
end
refuse("more MiB than any node, in the plugin's form", "vgpu:1", "mem=17179869185", nil,
	"vgpu: VGPU_REQUEST=mem=17179869185: this request is malformed: use the --vgpu options")
refuse("more slices than any job", "vgpu:4097", "mem=1", nil, "vgpu: --gres=vgpu:4097: want a number of slices from 1, as in vgpu:2")
refuse("no table, no memory", "vgpu:1", nil, nil, "vgpu: --gres=vgpu:1: no memory is asked for, and this cluster has no table of its GPUs to take a default from: add --vgpu-mem=3000")
refuse("no table, percent", "vgpu:1", "mem=25%", nil, "vgpu: --vgpu-mem=25%: this cluster has no table of its GPUs to take a share of: give MiB, as in --vgpu-mem=3000")
refuse("no table, unit", "gpumem:8G", nil, nil, "vgpu: --gres=gpumem:8G: gpumem counts MiB and takes no unit: write gpumem:8192")

-- A bad table is logged once and leaves the last good one in force; nothing in it can reach out.
for text, reason in pairs({
	["return {"] = "cluster.lua:1: ", ["return 1"] = "it returns no table with nodes", ["return {nodes={}}"] = "it returns no table with nodes",
	['return {nodes={{names="a", gpus=1, mem_mib="x", type="t"}}}'] = "nodes[1].mem_mib is no number",
	['return {nodes={{names="a", gpus=0, mem_mib=1, type="t"}}}'] = "nodes[1] has no GPU or no memory",
	['return {nodes={{names="a", gpus=1, mem_mib=0, type="t"}}}'] = "nodes[1] has no GPU or no memory",
	['return {nodes={{names="b", gpus=1, mem_mib=1, type="t"}, {names="a", gpus=1, mem_mib=0.5, type="t"}}}'] = "nodes[2] has no GPU or no memory",
	['return {nodes={"a"}}'] = "nodes[1].", ['os.exit(3)'] = "os", ['return {slices_per_gpu=0, nodes={{names="a", gpus=1, mem_mib=1, type="t"}}}'] = "slices_per_gpu is no number from 1",
	["\27Lua"] = "it is bytecode",
	['return {gres_gpu=true, nodes={{names="a", gpus=1, mem_mib=1, type="t"}}}'] = "gres_gpu is not false",
	['return {latency=true, nodes={{names="a", gpus=1, mem_mib=1, type="t"}}}'] = "latency has no list qos",
	['return {latency={qos={}}, nodes={{names="a", gpus=1, mem_mib=1, type="t"}}}'] = "latency has no list partitions",
	['return {latency={qos={1}, partitions={}}, nodes={{names="a", gpus=1, mem_mib=1, type="t"}}}'] = "latency.qos[1] is no string",
}) do
	with_table(text)
	logged = nil
	refuse("bad table: " .. reason, "vgpu:1", "mem=25%", nil, "vgpu: --vgpu-mem=25%: this cluster has no table of its GPUs to take a share of: give MiB, as in --vgpu-mem=3000")
	check("bad table is logged: " .. reason, logged and logged:find(vgpu.cluster_file, 1, true) ~= nil and logged:find(reason, 1, true) ~= nil, true)
	logged = nil
	accept("bad table: " .. reason, "vgpu:1", "mem=5", nil, "vgpu:1,gpumem:5")
	check("bad table is logged once: " .. reason, logged, nil)
end
with_table(h200s)
accept("good table", "vgpu:1", nil, nil, "vgpu:1,gpumem:14377")
write("return {nodes=")
accept("half-written table", "vgpu:1", nil, nil, "vgpu:1,gpumem:14377")
write((h200s:gsub("143771", "80000")))
accept("new table", "vgpu:1", nil, nil, "vgpu:1,gpumem:8000")

-- scontrol update
with_table(h200s)
local function modify(what, new, old, want, message, options)
	local change = { gres = new }
	said = nil
	check(what .. " code", vgpu.job_modify(change, { gres = old, spank_job_env = options }, {}, 1000), message and 2072 or slurm.SUCCESS)
	check(what .. " says", said, message)
	check(what .. " GRES", change.gres, want)
end
modify("something else changes", nil, "gres:vgpu:1,gres:gpumem:3000", nil)
modify("vgpu is dropped", "gres:", "gres:vgpu:1,gres:gpumem:3000", "gres:", "vgpu: Gres=: Slurm goes on counting vgpu of a job that has it: submit the job anew")
modify("vgpu is replaced", "gres:gpu:1", "gres:gpumem:3000", "gres:gpu:1", "vgpu: Gres=gpu:1: Slurm goes on counting gpumem of a job that has it: submit the job anew")
modify("the share is dropped", "vgpu:1,gpucores:0", "gres:vgpu:1,gres:gpumem:3000,gres:gpucores:30", "vgpu:1,gpucores:0", "vgpu: Gres=gpucores:0: Slurm goes on counting the gpucores of a job that has them: give another share, or submit the job anew")
modify("other GRES of another job", "gres:gpu:1", "gres:gpu:2", "gres:gpu:1")
for _, prefix in ipairs({ "", "SPANK_" }) do -- slurmctld puts it before what did not come through srun or sbatch
	local function submitted(request, typed) return { [0] = "OTHER=1", prefix .. "VGPU_REQUEST=" .. request, prefix .. "VGPU_TYPED=" .. typed } end
	local small = submitted("mem=2048;cores=20", "mem=2G;cores=20")
	modify("less than the options", "vgpu:2,gpumem:2000,gpucores:20", "vgpu:1,gpumem:2048,gpucores:20", "vgpu:2,gpumem:2000,gpucores:20", nil, small)
	modify("as much as the options", "vgpu:2", "vgpu:1,gpumem:2048,gpucores:20", "vgpu:2,gpumem:4096,gpucores:40", nil, small)
	modify("more than the options", "vgpu:2,gpumem:9000", "vgpu:1,gpumem:2048,gpucores:20", "vgpu:2,gpumem:9000", "vgpu: Gres=gpumem:9000: the job was submitted with --vgpu-mem=2G, which holds each slice to 2048 MiB: the most is gpumem:4096", small)
	modify("more time than the options", "vgpu:1,gpucores:21", "vgpu:1,gpumem:2048,gpucores:20", "vgpu:1,gpucores:21", "vgpu: Gres=gpucores:21: the job was submitted with --vgpu-cores=20, which holds each slice to 20 %: the most is gpucores:20", small)
	local quarter = submitted("mem=25%;cores=0", "mem=25%;cores=0")
	modify("the share of the options", "vgpu:1,gpumem:35942,gpucores:50", "vgpu:1,gpumem:35942", "vgpu:1,gpumem:35942,gpucores:50", nil, quarter)
	modify("more than the share", "vgpu:1,gpumem:35943", "vgpu:1,gpumem:35942", "vgpu:1,gpumem:35943", "vgpu: Gres=gpumem:35943: the job was submitted with --vgpu-mem=25%, which holds each slice to 35942 MiB: the most is gpumem:35942", quarter)
	local default = function(text) return { [0] = prefix .. "VGPU_DEFAULTS=" .. text } end
	modify("what is typed before a default share", "vgpu:1,gpumem:20000", "vgpu:1,gpumem:14377", "gpumem:20000,vgpu:1", nil, default("mem=10%"))
	modify("a default share stays one", "vgpu:2", "vgpu:1,gpumem:14377", "vgpu:2,gpumem:28754", nil, default("mem=10%"))
	modify("what was typed before a default share stays so", "vgpu:2", "gres:gpumem:20000,gres:vgpu:1", "gpumem:40000,vgpu:2", nil, default("mem=10%"))
	modify("as much as the options, whatever the order", "gpumem:4096,vgpu:2", "vgpu:1,gpumem:2048,gpucores:20", "vgpu:2,gpumem:4096,gpucores:40", nil, small)
	modify("more than a default", "vgpu:1,gpumem:20000,gpucores:50", "vgpu:1,gpumem:2000", "vgpu:1,gpumem:20000,gpucores:50", nil, default("mem=2000;cores=10"))
	modify("unreadable options", "vgpu:1,gpumem:9000", "vgpu:1,gpumem:2048", "vgpu:1,gpumem:9000", nil, submitted("mem=2048;cores=x", "mem=2G"))
end
modify("complete", "gres:vgpu:2,gres:gpumem:8000", "gres:vgpu:1,gres:gpumem:3000", "vgpu:2,gpumem:8000")
modify("sizes per slice are kept", "gres:vgpu:2", "gres:vgpu:1,gres:gpumem:3000,gres:gpucores:30", "vgpu:2,gpumem:6000,gpucores:60")
modify("vgpu is new", "gres/vgpu:1", nil, "vgpu:1,gpumem:14377")
modify("job from before this script", "gres/vgpu:1", "gres/gpumem:8G", "vgpu:1,gpumem:14377")
modify("unit", "gres:gpumem:8G", "gres:vgpu:1,gres:gpumem:3000", "gres:gpumem:8G", "vgpu: Gres=gpumem:8G: gpumem counts MiB and takes no unit: write gpumem:8192")
modify("too long", "vgpu:" .. ("1"):rep(4092), nil, "vgpu:" .. ("1"):rep(4092), "vgpu: Gres: 4097 characters: at most 4096 are read")
modify("job with a long text", "gres:vgpu:1", "gres:vgpu:2," .. ("x"):rep(4096), "vgpu:1,gpumem:14377")
modify("too large", "gres:vgpu:1,gres:gpumem:200000", "gres:vgpu:1,gres:gpumem:3000", "gres:vgpu:1,gres:gpumem:200000", "vgpu: Gres=gpumem:200000: no GPU has 200000 MiB: the most is 143771 MiB (h200)")

-- Texts that the node could not tell from scontrol's own.
for _, text in ipairs({ "a\nJobId=1 x", "x JOB_GRES=vgpu:9", "\tJOB_GRES=" }) do
	local part = text:match("JobId=") or "JOB_GRES="
	refuse("imitating comment", "vgpu:1", nil, nil, "vgpu: --comment: it has a line that imitates scontrol's output: leave out " .. part, { comment = text })
	refuse("imitating name", "vgpu:1", nil, nil, "vgpu: --job-name: it has a line that imitates scontrol's output: leave out " .. part, { name = text })
	untouched("imitating comment of another job", { comment = text })
	said = nil
	check("imitating comment, changed", vgpu.job_modify({ comment = text }, { gres = "gres:vgpu:1" }, {}, 1000), 2072)
	check("imitating comment of another job, changed", vgpu.job_modify({ comment = text }, {}, {}, 1000), slurm.SUCCESS)
end
accept("other comments", "vgpu:1", nil, nil, "vgpu:1,gpumem:14377", nil, { comment = "see JobId=1\nand JobId 2", name = "JobId=5" })

-- Newer Slurm names the code; a fault of ours is not the user's.
slurm.ESLURM_INVALID_GRES = 4711
check("named code", vgpu.job_submit(job("gpumem:8G"), {}, 1000), 4711)
local broken = setmetatable({}, { __index = function() error("boom") end })
check("fault", vgpu.job_submit(broken, {}, 1000), slurm.ERROR)
check("fault is told", said, "vgpu: this job could not be checked: please tell the administrators")
check("fault is logged", logged and logged:find("boom", 1, true) ~= nil, true)

logged = nil
check("cli_filter accepts", vgpu.cli_filter({ gres = "vgpu:1,gpumem:3000" }), slurm.SUCCESS)
for _, none in ipairs({ "vgpu:0", "gres:vgpu:00", "gres/vgpu=0,gpumem:0", "gpucores:0", "gpu:1,vgpu:0" }) do
	check("cli_filter lets a step have " .. none, vgpu.cli_filter({ gres = none }), slurm.SUCCESS)
end
for _, some in ipairs({ "vgpu:0,gpumem:1000", "vgpu:0,gpucores:5", "gpumem:3000,vgpu:0" }) do
	check("cli_filter refuses " .. some, vgpu.cli_filter({ gres = some }), 4711)
	check("cli_filter says of " .. some, logged, "vgpu: --gres=vgpu:0: that is no slice: ask for one or more, as in vgpu:1, or leave it out")
end
for typed, meant in pairs({ ["vpgu:1"] = "vgpu:1", ["gres:vgpus:2"] = "vgpu:2", ["disk:1,gres/gvpu"] = "vgpu:1" }) do
	check("cli_filter refuses " .. typed, vgpu.cli_filter({ gres = typed }), 4711)
	check("cli_filter says of " .. typed, logged, "vgpu: --gres=" .. typed:gsub("disk:1,", ""):gsub("gres[:/]", "") .. ": there is no such GRES: did you mean " .. meant .. "?")
end
check("cli_filter accepts others", vgpu.cli_filter({ gres = "xvgpu:1,gpumemory:5" }), slurm.SUCCESS)
check("cli_filter accepts nothing", vgpu.cli_filter({}), slurm.SUCCESS)
check("cli_filter refuses", vgpu.cli_filter({ gres = "gres:gpumem:8G" }), 4711)
check("cli_filter says", logged, "vgpu: --gres=gpumem:8G: gpumem counts MiB and takes no unit: write gpumem:8192")

for _, whole in ipairs({ "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "ntasks-per-gpu" }) do
	local options = { [whole] = "1", spank = { vgpu = { ["vgpu-mem"] = "2000", ["vgpu-cores"] = "unset" }, other = { x = "1" } } }
	check("cli_filter refuses " .. whole, vgpu.cli_filter(options), 4711)
	check("cli_filter says " .. whole, logged, "vgpu: --" .. whole .. "=1: this asks for whole GPUs, and --vgpu-mem=2000 is of slices: use --gres=vgpu:N")
	options.gres = "vgpu:1"
	local by_gpu = whole == "ntasks-per-gpu" -- of the others job_submit knows
	check("cli_filter, " .. whole .. " beside slices", vgpu.cli_filter(options), by_gpu and 4711 or slurm.SUCCESS)
	check("cli_filter accepts " .. whole .. " alone", vgpu.cli_filter({ [whole] = "1", spank = { vgpu = { ["vgpu-mem"] = "unset" } } }), slurm.SUCCESS)
end
for option, instead in pairs({ ["cpus-per-gpu=4"] = "--cpus-per-task", ["mem-per-gpu=2G"] = "--mem, or --vgpu-mem for memory of the GPU", ["ntasks-per-gpu=1"] = "--ntasks-per-node" }) do
	local name, value = option:match("^(.*)=(.*)$")
	check("cli_filter refuses " .. option, vgpu.cli_filter({ gres = "gres:vgpu:1", [name] = value }), 4711)
	check("cli_filter says of " .. option, logged, "vgpu: --" .. option .. ": this is of whole GPUs, and vgpu is of slices: use " .. instead)
	check("cli_filter accepts beside whole GPUs " .. option, vgpu.cli_filter({ gpus = "1", gres = "vgpu:1", [name] = value }), slurm.SUCCESS)
	check("cli_filter accepts without ours " .. option, vgpu.cli_filter({ gres = "disk:1", [name] = value }), slurm.SUCCESS)
	for _, unset in ipairs({ "-2", "0", "", "unset", "18446744073709551614", -2 }) do
		check("cli_filter accepts " .. name .. " as " .. unset, vgpu.cli_filter({ gres = "vgpu:1", [name] = unset }), slurm.SUCCESS)
	end
end
check("cli_filter accepts options without GPUs", vgpu.cli_filter({ ["ntasks-per-gpu"] = -2, spank = { vgpu = { ["vgpu-mem"] = "1" } } }), slurm.SUCCESS)

print(string.format("%d checks, %d failures", count, failures))
os.exit(failures == 0 and 0 or 1)
