// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"slices"
	"strconv"
	"strings"
)

// Kind is how the text of an option becomes a part of a request, and back.
type Kind struct {
	Lua    string   // the reader of the canonical form in gres/vgpu_parse.lua
	Want   string   // accepted forms, for error messages
	Values []string // of a choice: all that are accepted
	Offers []string // what a shell offers

	parse func(value string, into *Request) bool
	print func(r Request) string            // canonical value, "" when not asked for
	copy  func(into *Request, from Request) // all that parse may set
	fill  func(into *Request, defaults Request)
}

// choice is one of some words.
func choice[T ~string](field func(*Request) *T, values ...T) Kind {
	k := of(field)
	k.Lua = "choice"
	for _, value := range values {
		k.Values = append(k.Values, string(value))
	}
	k.Offers = k.Values
	last := len(k.Values) - 1
	k.Want = strings.Join(k.Values[:last], ", ") + " or " + k.Values[last]
	k.parse = func(text string, into *Request) bool {
		*field(into) = T(text)
		return slices.Contains(values, T(text))
	}
	k.print = func(r Request) string { return string(*field(&r)) }
	return k
}

// names is a list of names, of which some may be excluded.
func names(field func(*Request) *Filter, lua, want string, valid func(name string) bool) Kind {
	k := of(field)
	k.Lua, k.Want = lua, want
	k.parse = func(text string, into *Request) (ok bool) { *field(into), ok = parseFilter(text, valid); return ok }
	k.print = func(r Request) string { return field(&r).String() }
	return k
}

// memory is MiB, or a share of the GPU. MiB are not filled in: job_submit turned those defaults into GRES, unless the job's own GRES said
// otherwise, so that the entitlement already holds what is right. A percentage is still needed, because it is of the GPU on which
// the slice lands.
func memory(field func(*Request) *Mem) Kind {
	k := of(field)
	k.Lua, k.Want = "mem", "MiB as 3000 or 3000M, GiB as 8G, or a share of the GPU as 25%"
	k.Offers = []string{"1G", "2G", "4G", "8G", "16G", "25%", "50%", "100%"}
	k.parse = func(text string, into *Request) (ok bool) { *field(into), ok = parseMem(text); return ok }
	k.print = func(r Request) string { return field(&r).String() }
	k.fill = func(into *Request, defaults Request) { field(into).Percent = field(&defaults).Percent }
	return k
}

// cores is a percentage of GPU time. Defaults are in the entitlement, as those of memory.
func cores() Kind {
	return Kind{
		Lua: "cores", Want: "a percentage of GPU time from 1 to 100, or 0 for no cap",
		Offers: []string{"10", "20", "25", "30", "40", "50", "60", "70", "75", "80", "90", "100"},
		parse:  parseCores,
		print:  printCores,
		copy:   func(into *Request, from Request) { into.SMPercent, into.Uncapped = from.SMPercent, from.Uncapped },
		fill:   func(*Request, Request) {},
	}
}

// of is what is the same for whatever is one field of a request.
func of[T any](field func(*Request) *T) Kind {
	set := func(into *Request, from Request) { *field(into) = *field(&from) }
	return Kind{copy: set, fill: set}
}

// Unit is a unit of memory. Those that are not taken are known to job_submit alone, which says what to write instead: GRES take none.
type Unit struct {
	Name  string // in lower case; any case is read
	MiB   int64
	Taken bool // by --vgpu-mem
}

// Units are all units of memory. "K" is Slurm's own suffix of a count, which is of MiB.
var Units = []Unit{
	{"m", 1, true}, {"mib", 1, true}, {"mb", 1, false}, {"k", 1 << 10, false},
	{"g", 1 << 10, true}, {"gib", 1 << 10, true}, {"gb", 1 << 10, false},
	{"t", 1 << 20, false}, {"tib", 1 << 20, false}, {"tb", 1 << 20, false},
}

// unitOf is how many MiB a unit of an option is; 0: none is called so.
func unitOf(name string) int64 {
	if name == "" {
		return 1
	}
	for _, unit := range Units {
		if unit.Taken && unit.Name == name {
			return unit.MiB
		}
	}
	return 0
}

// maxMiB is 16 PiB: what comes later can add and multiply by 1024 without overflow.
const maxMiB = 1 << 34

func parseMem(text string) (Mem, bool) {
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	number, unit := text[:digits], strings.ToLower(text[digits:])
	if unit == "%" || strings.HasPrefix(unit, ".") {
		percent, ok := parsePercent(text)
		return Mem{Percent: percent}, ok
	}
	times := unitOf(unit)
	if times == 0 {
		return Mem{}, false
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || n > maxMiB/times {
		return Mem{}, false
	}
	return Mem{MiB: n * times}, true
}

// parsePercent takes plain decimal notation only, because Lua and Go must read the same number.
func parsePercent(text string) (float64, bool) {
	number, ok := strings.CutSuffix(text, "%")
	whole, fraction, point := strings.Cut(number, ".")
	if !ok || len(number) > 12 || !allDigits(whole) || point && !allDigits(fraction) {
		return 0, false
	}
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil || percent <= 0 || percent > 100 {
		return 0, false
	}
	return percent, true
}

func allDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

func parseCores(value string, into *Request) bool {
	if !allDigits(value) || len(value) > 18 {
		return false
	}
	percent, err := strconv.Atoi(value)
	if err != nil || percent > 100 {
		return false
	}
	into.SMPercent, into.Uncapped = percent, percent == 0
	return true
}

func printCores(r Request) string {
	if r.SMPercent == 0 && !r.Uncapped {
		return ""
	}
	return strconv.Itoa(r.SMPercent)
}

// String is the canonical text: "3000", "25%", or "" for nothing asked.
func (m Mem) String() string {
	switch {
	case m.Percent != 0:
		return strconv.FormatFloat(m.Percent, 'f', -1, 64) + "%"
	case m.MiB != 0:
		return strconv.FormatInt(m.MiB, 10)
	}
	return ""
}
