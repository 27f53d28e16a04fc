// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

func sorted[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// state is the column of the counts that an entry falls into.
type state int

const (
	withRow state = iota
	needsNone
	planned
	states
)

func (e entry) state() state {
	switch {
	case e.kind != "":
		return withRow
	case strings.HasPrefix(e.reason, notYet):
		return planned
	default:
		return needsNone
	}
}

// disposition is the last column of the document.
func (e entry) disposition() string {
	if e.kind != "" {
		return "row `" + e.kind + "`"
	}
	return strings.ReplaceAll(e.reason, "|", `\|`)
}

// counts is by class.
type counts map[string]*[states]int

func count(entries []entry) counts {
	c := counts{}
	for _, class := range classes {
		c[class] = new([states]int)
	}
	for _, e := range entries {
		c[e.class][e.state()]++
	}
	return c
}

func (c counts) sum() (sum [states]int) {
	for class, n := range c {
		if class == neither {
			continue
		}
		for i := range n {
			sum[i] += n[i]
		}
	}
	return sum
}

var apis = []struct{ title, prefix, table string }{
	{"CUDA driver", "cu", "cuda.def"},
	{"NVML", "nvml", "nvml.def"},
}

func ofAPI(entries []entry, prefix string) []entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return !strings.HasPrefix(e.symbol, prefix) })
}

// render makes the document from what is committed alone, so that it is the same on every machine.
func render(entries []entry) string {
	var b strings.Builder
	b.WriteString(`<!-- SPDX-FileCopyrightText: The slurm-vgpu authors -->
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Made by "make coverage" from interposer/api and test/coverage; changes belong there. -->
# What of CUDA and NVML is covered

Every entry point that allocates, frees, shares, maps, launches, or tells of memory or processes, with its row in
` + "`interposer/api`" + `, or why it needs none, or what is still missing. ` + "`make coverage`" + ` makes this page anew, and reads the
headers it finds for entry points that nobody has looked at yet. Variants stand with their name: ` + "`_v2`" + ` and the like
have another binary interface, ` + "`_ptsz` and `_ptds`" + ` use the per-thread default stream.

| | entry points | with a row | need none | not yet |
|---|--:|--:|--:|--:|
`)
	for _, api := range apis {
		c := count(ofAPI(entries, api.prefix))
		line := func(what string, n [states]int) {
			fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", what, n[withRow]+n[needsNone]+n[planned], n[withRow], n[needsNone], n[planned])
		}
		line("**"+api.title+"**", c.sum())
		for _, class := range classes {
			if *c[class] != [states]int{} && class != neither {
				line(class, *c[class])
			}
		}
		n := *c[neither]
		line("none of these", n)
	}
	for _, api := range apis {
		fmt.Fprintf(&b, "\n## %s\n\n| entry point | class | row in `%s`, reason, or what is missing |\n|---|---|---|\n", api.title, api.table)
		for _, group := range grouped(ofAPI(entries, api.prefix)) {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", symbols(group), group[0].class, group[0].disposition())
		}
	}
	return b.String()
}

// grouped leaves out what is neither and has no row, and puts variants of one name and one fate
// together.
func grouped(entries []entry) [][]entry {
	shown := slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return e.class == neither && e.kind == "" })
	slices.SortFunc(shown, func(a, b entry) int {
		return cmp.Or(cmp.Compare(slices.Index(classes, a.class), slices.Index(classes, b.class)),
			cmp.Compare(a.base, b.base), cmp.Compare(a.state(), b.state()),
			cmp.Compare(len(a.tail), len(b.tail)), cmp.Compare(a.tail, b.tail))
	})
	var groups [][]entry
	for _, e := range shown {
		if n := len(groups); n > 0 && groups[n-1][0].base == e.base && groups[n-1][0].disposition() == e.disposition() {
			groups[n-1] = append(groups[n-1], e)
			continue
		}
		groups = append(groups, []entry{e})
	}
	return groups
}

func symbols(group []entry) string {
	var parts []string
	for i, e := range group {
		if i == 0 {
			parts = append(parts, "`"+e.symbol+"`")
		} else {
			parts = append(parts, "`"+cmp.Or(e.tail, e.symbol)+"`")
		}
	}
	return strings.Join(parts, ", ")
}
