// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Option is one row of the option table: what srun --help shows, the variable that holds its
// default, and the key under which the canonical form carries it.
type Option struct {
	Name    string // without dashes: "vgpu-mem"
	Metavar string
	Usage   string // one line for --help
	Env     string // default of the option
	Want    string // accepted forms, for error messages

	key   string
	parse func(value string, into *Request) bool
	print func(r Request) string // canonical value, "" when not asked for
}

// Options is every option, in the order of --help and of the canonical form.
var Options = []Option{
	{
		Name: "vgpu-mem", Metavar: "SIZE", Env: "VGPU_MEM", key: "mem",
		Usage: "device memory of each slice: MiB, or 8G, or a share of the GPU as 25%",
		Want:  "MiB as 3000 or 3000M, GiB as 8G, or a share of the GPU as 25%",
		parse: func(value string, into *Request) (ok bool) { into.Mem, ok = parseMem(value); return ok },
		print: func(r Request) string { return r.Mem.String() },
	},
	{
		Name: "vgpu-cores", Metavar: "PERCENT", Env: "VGPU_CORES", key: "cores",
		Usage: "percent of each GPU's time: 1 to 100, 100 is the GPU to itself, 0 is no cap",
		Want:  "a percentage of GPU time from 1 to 100, or 0 for no cap",
		parse: parseCores, print: printCores,
	},
	{
		Name: "vgpu-place", Metavar: "pack|spread", Env: "VGPU_PLACE", key: "place",
		Usage: "prefer the fullest GPU that fits (pack) or the emptiest (spread)",
		Want:  "pack or spread",
		parse: func(value string, into *Request) bool {
			into.Place = Place(value)
			return into.Place == PlacePack || into.Place == PlaceSpread
		},
		print: func(r Request) string { return string(r.Place) },
	},
	{
		Name: "vgpu-policy", Metavar: "cap|elastic", Env: "VGPU_POLICY", key: "policy",
		Usage: "never above the share (cap), or use GPU time that nobody else wants (elastic)",
		Want:  "cap or elastic",
		parse: func(value string, into *Request) bool {
			into.Policy = Policy(value)
			return into.Policy == PolicyCap || into.Policy == PolicyElastic
		},
		print: func(r Request) string { return string(r.Policy) },
	},
	{
		Name: "vgpu-priority", Metavar: "latency|normal|batch", Env: "VGPU_PRIORITY", key: "priority",
		Usage: "work goes before others' while there is credit (latency), or may be cut short (batch)",
		Want:  "latency, normal or batch",
		parse: func(value string, into *Request) bool {
			into.Priority = Priority(value)
			return into.Priority == PriorityLatency || into.Priority == PriorityNormal || into.Priority == PriorityBatch
		},
		print: func(r Request) string { return string(r.Priority) },
	},
	{
		Name: "vgpu-gpu", Metavar: "TYPE[,…]", Env: "VGPU_GPU", key: "gpu",
		Usage: "only on GPUs of these types; !TYPE excludes",
		Want:  "GPU types as h200 or h200,l40s, or !a100 to exclude",
		parse: func(value string, into *Request) (ok bool) { into.GPU, ok = parseFilter(value, validType); return ok },
		print: func(r Request) string { return r.GPU.String() },
	},
	{
		Name: "vgpu-uuid", Metavar: "UUID[,…]", Env: "VGPU_UUID", key: "uuid",
		Usage: "only on these GPUs, by UUID or its first 8 characters after GPU-; !UUID excludes",
		Want:  "device UUIDs as GPU-1b2c3d4e (8 characters after GPU- at least), or !GPU-1b2c3d4e to exclude",
		parse: func(value string, into *Request) (ok bool) { into.UUID, ok = parseFilter(value, validUUID); return ok },
		print: func(r Request) string { return r.UUID.String() },
	},
	{
		Name: "vgpu-bind", Metavar: "none|task", Env: "VGPU_BIND", key: "bind",
		Usage: "each task of a step sees all of its slices (none), or one of them in turn (task)",
		Want:  "none or task",
		parse: func(value string, into *Request) bool {
			into.Bind = Bind(value)
			return into.Bind == BindNone || into.Bind == BindTask
		},
		print: func(r Request) string { return string(r.Bind) },
	},
}

// Prefixes of the two entries of the job control environment that carry a request.
const (
	ControlRequest  = "VGPU_REQUEST"
	ControlDefaults = "VGPU_DEFAULTS"
)

// ErrUnknownOption is returned for a name that is no row of Options.
var ErrUnknownOption = errors.New("no such vgpu option")

// ParseOption reads the value of --name into r. Its error is one line for the user, without the
// "vgpu: " prefix: the option with its value, and the accepted forms. r is unchanged on error.
func ParseOption(name, value string, r *Request) error {
	return ParseAs("--"+name, name, value, r)
}

// ParseAs is ParseOption where the user has typed another name.
func ParseAs(typed, name, value string, r *Request) error {
	for _, option := range Options {
		if option.Name == name {
			return option.read(typed, value, r)
		}
	}
	return fmt.Errorf("%s: %w", shorten(typed), ErrUnknownOption)
}

// ParseEnv reads the environment's defaults into r: getenv is asked once for each row's variable,
// and an empty or missing variable means nothing. Every bad value is an error that names its
// variable; the good ones are taken all the same, because a default must not stop a job.
func ParseEnv(getenv func(name string) string, r *Request) error {
	var bad []error
	for _, option := range Options {
		if value := getenv(option.Env); value != "" {
			bad = append(bad, option.read(option.Env, value, r))
		}
	}
	return errors.Join(bad...)
}

func (o Option) read(typed, value string, r *Request) error {
	parsed := *r
	if !o.parse(value, &parsed) {
		return fmt.Errorf("%s=%s: want %s", typed, shorten(value), o.Want)
	}
	*r = parsed
	return nil
}

// shorten makes a user's text fit for one line of an error message.
func shorten(text string) string {
	const longest = 40
	cut := false
	if len(text) > longest {
		text, cut = text[:longest], true
	}
	plain := strings.IndexFunc(text, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' }) < 0
	if text != "" && !plain {
		text = strconv.QuoteToASCII(text)
	}
	if cut {
		text += "…"
	}
	return text
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
	var times int64
	switch unit {
	case "", "m", "mib":
		times = 1
	case "g", "gib":
		times = 1024
	default:
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
