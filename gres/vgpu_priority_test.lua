-- SPDX-FileCopyrightText: The slurm-vgpu authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Tests of priorities in vgpu.lua: `lua5.1 vgpu_priority_test.lua FOLDER`, where FOLDER is for scratch files. lua_test.go runs it.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local scratch = assert(arg[1], "usage: lua vgpu_priority_test.lua FOLDER")
local failures, checks = 0, 0

local said
slurm = {
	SUCCESS = 0, ERROR = -1,
	log_user = function(format, ...) said = string.format(format, ...) end,
	log_error = function(format, ...) said = string.format(format, ...) end,
}

-- What is said to a job whose table says this of latency; "" is an older table, nil none at all.
local function submit(what, latency, gres, options, defaults, qos, partition, want, want_gres)
	local vgpu = dofile(here .. "vgpu.lua")
	vgpu.cluster_file = scratch .. (latency and "/priority.lua" or "/missing.lua")
	if latency then
		local file = assert(io.open(vgpu.cluster_file, "w"))
		file:write("return {" .. latency .. 'nodes={{names="n[1-4]", gpus=2, mem_mib=143771, type="h200"}}}')
		file:close()
	end
	local job = { gres = gres, qos = qos, partition = partition, spank_job_env = { [0] = "VGPU_REQUEST=" .. options, defaults and "VGPU_DEFAULTS=" .. defaults } }
	said = nil
	local code = vgpu.job_submit(job, {}, 1000)
	checks = checks + 1
	if code == (want and 2072 or 0) and said == want and job.gres == (want and gres or want_gres or "vgpu:1,gpumem:3000,gpucores:30") then return end
	failures = failures + 1
	print(string.format("FAIL %s: %s, %s\n  says %s\n  want %s", what, code, job.gres, tostring(said), tostring(want)))
end

local first = "mem=3000;cores=30;priority=latency"
for _, row in ipairs({
	{}, { nil, "rt", "p" }, { "" }, { "", "rt", "p" },
	{ '{qos={"rt"}, partitions={}}', "rt" }, { '{qos={"RT"}, partitions={}}', "rT", "p" }, { '{qos={"rt"}, partitions={}}' }, { '{qos={"rt"}, partitions={}}', "" },
	{ '{qos={}, partitions={"fast"}}', "x", "fast" }, { '{qos={}, partitions={"fast"}}' }, { '{qos={}, partitions={"fast", "b"}}', nil, "fast,b" },
	{ '{qos={"*"}, partitions={}}', "x", "p" }, { '{qos={}, partitions={"*"}}', "x", "p" }, { '{qos={"rt"}, partitions={"fast"}}', "x" },
	{ '{qos={"rt"}, partitions={"fast"}}', nil, "slow" },
}) do
	local latency = row[1] and row[1] ~= "" and "latency=" .. row[1] .. ", " or row[1]
	submit("may, by " .. tostring(row[1]) .. " of " .. tostring(row[2]) .. " in " .. tostring(row[3]), latency, "vgpu:1", first, nil, row[2], row[3])
end

for _, row in ipairs({
	{ "{qos={}, partitions={}}", "this site gives it to no QOS and no partition (latency_qos, latency_partitions)", "rt" },
	{ '{qos={"rt", "two"}, partitions={}}', "it is for QOS rt, two, and the job is of QOS normal in partition p", "normal", "p" },
	{ '{qos={}, partitions={"fast"}}', "it is for partition fast, and the job is of QOS (default) in partition fast,slow", nil, "fast,slow" },
	{ '{qos={"rt"}, partitions={"fast"}}', "it is for QOS rt and partition fast, and the job is of QOS x in partition Fast", "x", "Fast" },
	{ '{qos={"rt"}, partitions={}}', "it is for QOS rt, and the job is of QOS ?[31m in partition p", "\27[31m", "p" },
}) do
	local latency = "latency=" .. row[1] .. ", "
	submit("may not, by " .. row[1], latency, "vgpu:1", first, nil, row[3], row[4], "vgpu: --vgpu-priority=latency: " .. row[2])
	submit("a default, by " .. row[1], latency, "vgpu:1", "mem=3000;cores=30", "priority=latency", row[3], row[4], "vgpu: VGPU_PRIORITY=latency: " .. row[2])
	submit("normal before a default, by " .. row[1], latency, "vgpu:1", "mem=3000;cores=30;priority=normal", "priority=latency", row[3], row[4])
	submit("batch, by " .. row[1], latency, "vgpu:1", "mem=3000;cores=30;priority=batch", nil, row[3], row[4])
end
submit("many partitions", 'latency={qos={}, partitions={"fast"}}, ', "vgpu:1", first, nil, nil, ("fast,"):rep(1000), "vgpu: --partition: 5000 characters: at most 4096 are read")

local share = "vgpu: --vgpu-priority=latency: give --vgpu-cores as well, the share at which its credit comes"
submit("without a share", "", "vgpu:1", "mem=3000;priority=latency", nil, "rt", "p", share)
submit("without a cap", "", "vgpu:1", "mem=3000;cores=0;priority=latency", "cores=30", "rt", "p", share)
submit("a share in the GRES", "", "vgpu:2,gpumem:2000,gpucores:20", "priority=latency", nil, "rt", "p", nil, "vgpu:2,gpumem:2000,gpucores:20")
submit("a default share", "", "vgpu:1", "mem=3000;priority=latency", "cores=30", "rt", "p")

print(string.format("%d checks, %d failed", checks, failures))
os.exit(failures == 0 and 0 or 1)
