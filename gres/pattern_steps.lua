-- SPDX-FileCopyrightText: The slurm-vgpu authors
-- SPDX-License-Identifier: Apache-2.0
--
-- Counts what Lua's patterns cost, for tests: one step for each character that is held against one
-- item of a pattern. A clock would say what the machine does besides, and debug.sethook does not see
-- into string.find. Every answer is compared with the real function's, so that the count is of the
-- same search.
--
--     local steps = dofile("pattern_steps.lua")
--     steps.watch(function(name, pattern, text, count) ... end)   -- after each call
--     ... steps.unwatch()

local real = { find = string.find, match = string.match, gsub = string.gsub, gmatch = string.gmatch }
local count

-- One item of a pattern: a test for a character, and how often it may come.
local function item_at(pattern, at)
	local stop = at
	if pattern:byte(at) == 37 then -- %
		stop = at + 1
	elseif pattern:byte(at) == 91 then -- [
		stop = assert(real.find(pattern, "]", at + 2, true), "set without an end: " .. pattern)
	end
	local source, known = "^" .. pattern:sub(at, stop) .. "$", {}
	local function admits(c)
		if known[c] == nil then known[c] = real.find(string.char(c), source) ~= nil end
		return known[c]
	end
	local often = pattern:sub(stop + 1, stop + 1)
	if often == "" or not real.find("*+-?", often, 1, true) then return { admits = admits }, stop + 1 end
	return { admits = admits, often = often }, stop + 2
end

local compiled = {}
local function compile(pattern)
	if compiled[pattern] then return compiled[pattern] end
	local items, at = {}, 1
	if pattern:sub(1, 1) == "^" then items.anchored, at = true, 2 end
	while at <= #pattern do
		local c = pattern:sub(at, at)
		assert(not real.find(pattern, "^%%[bf%d]", at), "not counted: " .. pattern)
		if c == "(" or c == ")" then -- captures cost nothing by themselves
			at = at + 1
		elseif c == "$" and at == #pattern then
			items[#items + 1], at = { last = true }, at + 1
		else
			items[#items + 1], at = item_at(pattern, at)
		end
	end
	compiled[pattern] = items
	return items
end

local function one(item, text, at)
	count = count + 1
	return at <= #text and item.admits(text:byte(at))
end

-- The end of the match of items k and on from at, or nil.
local function rest(items, k, text, at)
	while true do
		local item = items[k]
		if not item then return at end
		if item.last then
			count = count + 1
			return at > #text and at or nil
		end
		if item.often then break end
		if not one(item, text, at) then return nil end
		k, at = k + 1, at + 1
	end
	local item, least, most = items[k], 0, 0
	if item.often == "-" then
		while true do
			local stop = rest(items, k + 1, text, at)
			if stop or not one(item, text, at) then return stop end
			at = at + 1
		end
	end
	while (item.often ~= "?" or most < 1) and one(item, text, at + most) do most = most + 1 end
	if item.often == "+" then least = 1 end
	for n = most, least, -1 do
		local stop = rest(items, k + 1, text, at + n)
		if stop then return stop end
	end
end

-- Where the pattern is found first from at on: its start and the position behind it.
local function first(pattern, text, at)
	local items = compile(pattern)
	for start = at, items.anchored and at or #text + 1 do
		local stop = rest(items, 1, text, start)
		if stop then return start, stop end
	end
end

local function all(pattern, text)
	local n, at = 0, 1
	while at <= #text + 1 do
		local start, stop = first(pattern, text, at)
		if not start then break end
		n, at = n + 1, stop > start and stop or stop + 1
		if compile(pattern).anchored then break end
	end
	return n
end

local steps = {}

function steps.watch(told)
	local function counted(name, pattern, text, search, ...)
		count = 0
		local got, want = search(pattern, text, ...)
		told(name, pattern, text, count)
		return got, want
	end
	local function same(name, pattern, got, want)
		assert(got == want, string.format("string.%s with %q: counted %s, real %s", name, pattern, tostring(got), tostring(want)))
	end
	function string.find(text, pattern, at, plain)
		if plain then return real.find(text, pattern, at, plain) end
		at = math.max(at or 1, 1)
		same("find", pattern, counted("find", pattern, text, first, at), (real.find(text, pattern, at)))
		return real.find(text, pattern, at)
	end
	function string.match(text, pattern)
		same("match", pattern, counted("match", pattern, text, first, 1), (real.find(text, pattern)))
		return real.match(text, pattern)
	end
	function string.gsub(text, pattern, by)
		local got, n = real.gsub(text, pattern, by)
		same("gsub", pattern, counted("gsub", pattern, text, all), n)
		return got, n
	end
	function string.gmatch(text, pattern)
		local n = 0
		for _ in real.gmatch(text, pattern) do n = n + 1 end
		same("gmatch", pattern, counted("gmatch", pattern, text, all), n)
		return real.gmatch(text, pattern)
	end
end

function steps.unwatch()
	for name, f in pairs(real) do string[name] = f end
end

return steps
