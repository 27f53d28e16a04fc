-- SPDX-FileCopyrightText: The slurm-vgpu authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Hostile texts for vgpu.lua, and what its patterns cost on them: `lua5.1 vgpu_fuzz.lua [SEED [ROUNDS]]`.
-- job_submit runs in slurmctld with its locks held, so one user's text must not cost more than in
-- proportion to its length, and none above 4096 characters anything.

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local seed, rounds = tonumber(arg[1] or 1), tonumber(arg[2] or 20)
local steps = dofile(here .. "pattern_steps.lua")

local max_bytes = 4096
-- One search goes over its text a few times at most. One that begins anew at each of the 4096 characters
-- takes half of 4096 steps for each.
local max_steps_per_byte = 16
-- A submission looks at its texts a few times, and at each of their parts.
local max_steps_per_job = 100

local failure -- the first one; the scripts catch errors
local function fail(...) failure = failure or string.format(...) end

local function said(_, text)
	if text:find("vgpu: fault", 1, true) then fail("%s", text) end
end
slurm = { SUCCESS = 0, ERROR = -1, log_user = said, log_error = said }
local vgpu = dofile(here .. "vgpu.lua")
vgpu.cluster_file = here .. "missing.lua"
vgpu.whole_gpus = true

local spent, worst = 0, 0
steps.watch(function(name, pattern, text, count)
	if #text > max_bytes then fail("string.%s(%q) on %d characters: no pattern may see that many", name, pattern, #text) end
	if count > max_steps_per_byte * (#text + 1) then fail("string.%s(%q) on %d characters: %d steps", name, pattern, #text, count) end
	spent, worst = spent + count, math.max(worst, count / (#text + 1))
end)

local submissions = 0
local function try(call, what)
	submissions, spent = submissions + 1, 0
	call()
	if spent > max_steps_per_job * max_bytes then fail("%d steps in all", spent) end
	if failure then
		print(what .. ": " .. failure)
		os.exit(1)
	end
end

-- Every place in which a user's text reaches the scripts.
local places = {
	function(text) vgpu.job_submit({ gres = text }, {}, 1000) end,
	function(text) vgpu.job_submit({ gres = "vgpu:1,gpumem:3000", spank_job_env = { [0] = "VGPU_REQUEST=" .. text } }, {}, 1000) end,
	function(text) vgpu.job_submit({ gres = "vgpu:1,gpumem:3000", spank_job_env = { [0] = "VGPU_DEFAULTS=" .. text } }, {}, 1000) end,
	function(text) vgpu.job_submit({ gres = "vgpu:1", spank_job_env = { [0] = "VGPU_REQUEST=mem=1", text, text .. "=" .. text, "VGPU_TYPED=mem=" .. text } }, {}, 1000) end,
	function(text) vgpu.job_submit({ gres = "vgpu:1", spank_job_env = { [0] = "VGPU_REQUEST=mem=1", "VGPU_TYPED=" .. text } }, {}, 1000) end,
	function(text) vgpu.job_submit({ tres_per_job = text, tres_per_socket = text, tres_per_task = text }, {}, 1000) end,
	function(text) vgpu.job_submit({ gres = "vgpu:1,gpumem:1", comment = text, name = text, req_nodes = text, exc_nodes = text }, {}, 1000) end,
	function(text) vgpu.job_modify({ gres = text }, { gres = "gres:vgpu:1,gres:gpumem:3000" }, {}, 1000) end,
	function(text) vgpu.job_modify({ gres = "vgpu:1" }, { gres = text }, {}, 1000) end,
	function(text) vgpu.cli_filter({ gres = text }) end,
}

local function everywhere(text, what)
	for i, place in ipairs(places) do
		try(function() place(text) end, string.format("place %d, %s", i, what))
	end
end

-- Long runs of what some pattern repeats, between what leads up to it and what makes it fail at the end.
local runs = { " ", "\t", "\n", ":", ",", "=", ";", "0", "9", "1.", ".", "a", "a1", "_", "-", "!", "%", "[", "]", "(", ")", "a ", " a", "1,", ", ", " ,", ": ", "gres:", "gres/", "vgpu:", "vgpu:1,", "vgpu,", "mem=", "mem=1;", "!a,", "x=" }
local heads = { "", "vgpu:1,", "vgpu:", "vgpu:a", "vgpu:half:", "vgpu:1", "gpumem:", "gpumem:3000", "vgpu:1,gpumem:3000", "gres:vgpu:1,x", "mem=", "mem=1", "cores=", "gpu=", "uuid=", "gpu=a" }
local tails = { "", "x", "%", " x", ":1", ",vgpu:1", ";", "\0" }

local function long(head, run, length, tail)
	local times = math.floor((length - #head - #tail) / #run)
	everywhere(head .. run:rep(times) .. tail, string.format("%q, %q %d times, %q", head, run, times, tail))
end

for _, run in ipairs(runs) do
	for _, head in ipairs(heads) do
		for _, tail in ipairs(tails) do long(head, run, 400, tail) end -- a search that begins anew takes 200 for each
		long(head, run, 60000, "x")
	end
	long("vgpu:1,", run, max_bytes, "x")
end

-- Many entries, each as long as one may be: there is no bound to their number but Slurm's own.
for _, entry in ipairs({ "VGPU_TYPED=" .. ("a;"):rep(2000), "VGPU_REQUEST=" .. ("mem=1;"):rep(340), "VGPU_DEFAULTS=" .. ("x=1;"):rep(500), "SPANK_VGPU_TYPED=a=b" }) do
	local env = { [0] = "VGPU_REQUEST=mem=3000" }
	for i = 1, 2000 do env[i] = entry end
	try(function() vgpu.job_submit({ gres = "vgpu:1", spank_job_env = env }, {}, 1000) end, "2000 times " .. entry:sub(1, 20))
	try(function() vgpu.job_modify({ gres = "vgpu:1" }, { gres = "gres:vgpu:1", spank_job_env = env }, {}, 1000) end, "a change of 2000 times " .. entry:sub(1, 20))
end

-- Texts that repeat where a pattern admits one: the counted search must come to the same as the real one.
for _, text in ipairs({ "mem=1..5%", "mem=1.5%", "mem=15%", "mem=.5%", "gpu=!!a,b", "uuid=!!GPU-1", "vgpu::1", "vgpu:a::1", "gres::vgpu:1" }) do
	everywhere(text, text)
end

-- And such pieces in any order.
math.randomseed(seed)
local pieces = {}
for _, list in ipairs({ runs, heads, tails }) do
	for _, piece in ipairs(list) do pieces[#pieces + 1] = piece end
end
for round = 1, rounds do
	local parts, length = {}, 0
	while length < max_bytes - 600 do
		local part = pieces[math.random(#pieces)]:rep(math.random(3) == 1 and math.random(300) or 1)
		parts[#parts + 1], length = part, length + #part
	end
	everywhere(table.concat(parts):sub(1, max_bytes), "seed " .. seed .. ", round " .. round)
end

steps.unwatch()
print(string.format("%d submissions, at most %.1f steps a character", submissions, worst))
