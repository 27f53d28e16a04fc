#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# The rooms of the interposer: who includes whom goes down, and so does who calls whom, which includes alone do not
# tell, since a prototype can be written anywhere. Nothing goes in a circle, neither between rooms nor within one.
#   rooms.sh LIBRARY [TREE]    the objects lie in the folder interposer beside the library, or one above
set -u
library=$1
tree=${2:-$(dirname "$(readlink -f "$0")")/..}
# From the ground up. A file may know its own room and those before it.
rooms="base api process channels account driver gate memory route pools context nvml cuda"
# Addresses that are filled in where the library is linked: FILE:SYMBOLS and why, the one kind of arrow that may go up.
export TABLES="route/lookup.c:vgpu_wrap_ what a name is answered with: every row of api/*.def names its wrapper
route/route.c:vgpu_dl what the names dlsym and dlvsym are answered with
account/reclaim.c:vgpu_reclaimers whom the account asks for room before it refuses: context/reclaimers.c says"

objects=$(dirname "$library")/interposer
[ -d "$objects" ] || objects=$(dirname "$library")/../interposer
list=$(mktemp)
trap 'rm -f "$list"' EXIT
cd "$tree" || exit 1
for room in */; do
	for file in "$room"*.[chS]; do
		[ -e "$file" ] || continue
		echo "file $file"
		sed -n "s|^#[[:space:]]*include \"\([^\"]*\)\".*|includes $file \1|p" "$file"
	done
done >"$list"
cd - >/dev/null || exit 1
# Those of sources that are no more do not count.
(cd "$objects" && nm -gA */*.o) | awk -v tree="$tree/" '{
	file = $1; sub(/\.o:.*/, "", file)
	if (!(file in there)) there[file] = (getline line < (tree file)) >= 0
	if (there[file]) print $(NF - 1) == "U" || $(NF - 1) == "w" ? "wants" : "has", file, $NF
}' >>"$list"

ROOMS=$rooms awk '
function room(file) { sub(/\/.*/, "", file); return file }
function fail(how, text) { failed[how] = failed[how] "\n  " text }
# What is left once nobody stays who calls nobody, or is called by nobody, goes in a circle.
function circles(how, arrow, name, ends, out, into, alive, changed, n, left) {
	for (name in arrow) { split(name, ends, " "); alive[ends[1]] = alive[ends[2]] = 1 }
	do {
		changed = 0
		for (n in alive) { out[n] = into[n] = 0 }
		for (name in arrow) {
			split(name, ends, " ")
			if ((ends[1] in alive) && (ends[2] in alive)) { out[ends[1]]++; into[ends[2]]++ }
		}
		for (n in out) if ((n in alive) && (!out[n] || !into[n])) { delete alive[n]; changed = 1 }
	} while (changed)
	for (name in arrow) {
		split(name, ends, " ")
		if ((ends[1] in alive) && (ends[2] in alive)) { fail(how, "in a circle: " ends[1] " -> " ends[2] " (" arrow[name] ")"); left++ }
	}
	for (n in alive) files_in_circles[how]++
	return left + 0
}
function between(arrow, name, ends, pairs, n) {
	for (name in arrow) {
		split(name, ends, " ")
		if (room(ends[1]) != room(ends[2]) && !((room(ends[1]), room(ends[2])) in pairs)) { pairs[room(ends[1]), room(ends[2])]; n++ }
	}
	return n + 0
}
function summary(how, arrow, name, arrows) {
	arrows = 0
	for (name in arrow) arrows++
	return sprintf("%s: %d arrows between files, %d between rooms, %d up, %d files in circles", how, arrows, between(arrow), up[how], files_in_circles[how])
}
BEGIN {
	count = split(ENVIRON["ROOMS"], order, " ")
	for (i = 1; i <= count; i++) floor_of[order[i]] = i
	split(ENVIRON["TABLES"], lines, "\n")
	for (i in lines) { name = lines[i]; sub(/ .*/, "", name); excepted[name] = 0 }
}
$1 == "file" {
	files++
	if (!(room($2) in floor_of)) fail("includes", $2 " is in no room of the list")
}
# Numbers alone, below all rooms.
$1 == "includes" && $3 == "tuning.h" { next }
$1 == "includes" {
	if ($3 !~ /\// || !(room($3) in floor_of)) { fail("includes", $2 " includes \"" $3 "\", which is in no room"); next }
	included[$2 " " $3] = "include"
	if (floor_of[room($3)] > floor_of[room($2)]) { up["includes"]++; fail("includes", "up: " $2 " includes " $3) }
}
$1 == "has" { owner[$3] = $2; objects[$2] }
$1 == "wants" { wanted[$2 " " $3] }
END {
	for (pair in wanted) {
		split(pair, ends, " ")
		file = ends[1]; symbol = ends[2]
		if (!(symbol in owner) || owner[symbol] == file) continue
		allowed = ""
		for (name in excepted) {
			split(name, of, ":")
			if (file == of[1] && index(symbol, of[2]) == 1) allowed = name
		}
		if (allowed != "") { excepted[allowed]++; continue }
		called[file " " owner[symbol]] = symbol
	}
	for (pair in called) {
		split(pair, ends, " ")
		if (floor_of[room(ends[2])] > floor_of[room(ends[1])]) { up["calls"]++; fail("calls", "up: " ends[1] " -> " ends[2] " (" called[pair] ")") }
	}
	for (name in excepted) if (!excepted[name]) fail("calls", "nothing is filled in by " name " any more")
	for (file in objects) seen++
	if (!seen) fail("calls", "no objects were found")
	circles("includes", included)
	circles("calls", called)
	printf "%d rooms, %d files, %d objects\n%s\n%s\n", count, files, seen, summary("includes", included), summary("calls", called)
	print failed["includes"] == "" ? "PASS includes_go_down_and_in_no_circle" : "FAIL includes_go_down_and_in_no_circle:" failed["includes"]
	print failed["calls"] == "" ? "PASS calls_go_down_and_in_no_circle" : "FAIL calls_go_down_and_in_no_circle:" failed["calls"]
	exit failed["includes"] failed["calls"] != ""
}' "$list"
