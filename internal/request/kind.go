// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"math"
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
	doubt func(typed, value string) string // a question about a value that can be read and hardly be meant; nil: there is none
	typed func(r Request) string           // nil: as print
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
	k.Lua, k.Want = "mem", "MiB as 3000 or 3000M, GiB as 8G or 1.5G, or a share of the GPU as 25%"
	k.Offers = []string{"1G", "2G", "4G", "8G", "16G", "25%", "50%", "100%"}
	k.parse = func(text string, into *Request) (ok bool) { *field(into), ok = parseMem(text); return ok }
	k.print = func(r Request) string { return field(&r).String() }
	k.typed = func(r Request) string { return field(&r).Typed() }
	k.doubt = doubtMem
	k.fill = func(into *Request, defaults Request) { field(into).Percent = field(&defaults).Percent }
	return k
}

// cores is a percentage of GPU time. Defaults are in the entitlement, as those of memory.
func cores() Kind {
	return Kind{
		Lua: "cores", Want: "a percentage of GPU time from 1 to 100, as 30 or 30%, or 0 for no cap",
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

// Unit is a unit of memory, of which all are powers of 1024, as Slurm's own are. Those that are not taken are known to job_submit alone,
// which says what to write instead: GRES take none.
type Unit struct {
	Name  string // in lower case; any case is read
	MiB   int64
	Taken bool // by --vgpu-mem
}

// Units are all units of memory. "K" is Slurm's own suffix of a count, which is of MiB.
var Units = []Unit{
	{"m", 1, true}, {"mib", 1, true}, {"mb", 1, true}, {"k", 1 << 10, false},
	{"g", 1 << 10, true}, {"gib", 1 << 10, true}, {"gb", 1 << 10, true},
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

// leastContextMiB: a bare number below it is asked about, since a context takes 518 MiB of an H200, and half of that of older products. It
// is above what a GPU has in GiB, as long as that is less than 256.
const leastContextMiB = 256

func parseMem(text string) (Mem, bool) {
	end := len(text) - len(strings.TrimLeft(text, "0123456789."))
	number, unit := text[:end], strings.ToLower(text[end:])
	if unit == "%" {
		percent, ok := parsePercent(text)
		return Mem{Percent: percent}, ok
	}
	times := unitOf(unit)
	if times == 0 {
		return Mem{}, false
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err == nil && n <= maxMiB/times {
		return Mem{MiB: n * times}, n > 0
	}
	size, ok := parseDecimal(number) // "1.5" alone would be MiB, which nobody means
	if mib := math.Floor(size * float64(times)); ok && unit != "" && mib >= 1 && mib <= maxMiB {
		return Mem{MiB: int64(mib)}, true
	}
	return Mem{}, false
}

// doubtMem is about a number without a unit.
func doubtMem(typed, value string) string {
	mem, ok := parseMem(value)
	if !ok || !allDigits(value) || mem.MiB >= leastContextMiB {
		return ""
	}
	return fmt.Sprintf("%[1]d MiB is less than a CUDA context takes; did you mean %[2]s=%[1]dG? %[1]dM is taken as it is", mem.MiB, typed)
}

func parsePercent(text string) (float64, bool) {
	number, _ := strings.CutSuffix(text, "%")
	percent, ok := parseDecimal(number)
	if !ok || percent <= 0 || percent > 100 {
		return 0, false
	}
	return percent, true
}

// parseDecimal takes plain decimal notation only, because Lua and Go must read the same number.
func parseDecimal(number string) (float64, bool) {
	whole, fraction, point := strings.Cut(number, ".")
	if len(number) > 12 || !allDigits(whole) || point && !allDigits(fraction) {
		return 0, false
	}
	value, err := strconv.ParseFloat(number, 64)
	return value, err == nil
}

func allDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

func parseCores(value string, into *Request) bool {
	value = strings.TrimSuffix(value, "%")
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

// Typed is how a user writes it: a few MiB with their unit, since they are asked about without.
func (m Mem) Typed() string {
	if 0 < m.MiB && m.MiB < leastContextMiB {
		return m.String() + "M"
	}
	return m.String()
}
