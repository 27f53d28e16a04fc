// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"strconv"
	"strings"
)

// Option is one row of the table of options. All that shows an option elsewhere is made of its row, by `make generate`
// (package schema): the plugin's table and srun --help, Lua's keys and parsers, completions, README, docs/user.md and manual pages.
type Option struct {
	Name    string // without dashes: "vgpu-mem"
	Metavar string // of srun --help, in ASCII; of a choice "HOW"
	Help    string // one line of srun --help, in ASCII
	Forms   string // what README shows behind "--name=", in Markdown
	Long    string // in Markdown: README has the first paragraph, the manual page all of it
	InStep  string // what it does on an srun inside a job
	Picks   bool   // it chooses a GPU, which it cannot where Slurm does (shards)

	Kind
}

// Key is the option's name in the canonical form.
func (o Option) Key() string { return strings.TrimPrefix(o.Name, "vgpu-") }

// Env is the variable that holds the option's default.
func (o Option) Env() string { return "VGPU_" + strings.ToUpper(o.Key()) }

// Options is every option, in the order of --help and of the canonical form. Every one takes an argument: those without had
// faults in Slurm until 25.11.
var Options = []Option{
	{
		Name: "vgpu-mem", Metavar: "SIZE", Forms: "3000`, `3000M`, `8G`, `1.5G`, `25%", InStep: "cuts the step's part of each slice",
		Help: "device memory of each slice: MiB (3000), GiB (8G, 1.5G) or a share of the GPU (25%)",
		Long: "Device memory **per slice**. A bare number is MiB; a percentage is of the GPU that the slice lands on. Absent: a tenth of the " +
			"smallest GPU that it may land on, unless the site chose another number (`slices_per_gpu`).\n\n" +
			"`3000`, `3000M`, `3000MB` and `3000MiB` are MiB; `8G`, `8GB` and `8GiB` are GiB, also `1.5G`; upper and lower case are the same. " +
			"As with Slurm's own units `GB` is 1024 MiB, not a billion bytes. A percentage is above 0 and up to 100, as `25%` or `12.5%`.\n\n" +
			"A bare number below 256 is refused with a question, since a CUDA context takes more: `8` may mean `8G`. `8M` is taken. " +
			"Other spellings, as `1.5`, `3T` or `0`, are not accepted.",
		Kind: memory(func(r *Request) *Mem { return &r.Mem }),
	},
	{
		Name: "vgpu-cores", Metavar: "PERCENT", Forms: "30`, `30%", InStep: "cuts the step's part of each slice",
		Help: "at most this percentage of each GPU's time; 0 is no cap, 100 the GPU to itself",
		Long: "At most this percentage of each GPU's *time*, over some seconds, for all processes of the job together. Absent or 0: no cap. 100: the GPU " +
			"to itself, without others' slices.\n\nA whole number from 1 to 100, as `30` or `30%`. `0` is no cap also where `VGPU_CORES` says otherwise.",
		Kind: cores(),
	},
	{
		Name: "vgpu-place", Metavar: "HOW", Picks: true, InStep: "nothing: the job's GPUs are chosen",
		Help: "pack: the fullest GPU that fits; spread: the emptiest",
		Long: "The fullest GPU that fits, or the emptiest. Absent: the site's choice (`place`).",
		Kind: choice(func(r *Request) *Place { return &r.Place }, PlacePack, PlaceSpread),
	},
	{
		Name: "vgpu-policy", Metavar: "HOW", InStep: "`cap` takes back the job's `elastic`",
		Help: "cap: never above the share; elastic: also GPU time that no other slice wants",
		Long: "With `elastic` the slice also has GPU time that no other slice wants; `cap`, the default, leaves it unused.\n\n" +
			"When the slice that owns this time has work again, it has the time back at once. A site may have chosen the other default (`policy`).",
		Kind: choice(func(r *Request) *Policy { return &r.Policy }, PolicyCap, PolicyElastic),
	},
	{
		Name: "vgpu-priority", Metavar: "HOW", InStep: "may be lower than the job's; vgpud goes by the job's",
		Help: "latency: work goes before others' on the GPU; normal; batch: may be cut short",
		Long: "With `latency` the slice's work goes before its neighbours' while it has credit (with `elastic`, and where " +
			"[the site allows it](docs/admin.md#gpu-time-by-the-drivers-own-scheduler)); `batch` says that it may be interrupted " +
			"for others at any time. Today `batch` and `normal` act the same.\n\n" +
			"`latency` needs a share of GPU time, by `--vgpu-cores` or `gpucores`, and a site that lets the job's QOS or partition have it " +
			"(`latency_qos`, `latency_partitions` in slurm-vgpu-config.yaml(5)). Its credit comes at that share. Without `--vgpu-policy=elastic` it has no effect. " +
			"`normal` is the default. Beside a slice of `latency` with credit the two others have short time slices; nothing else tells them apart in this release.",
		Kind: choice(func(r *Request) *Priority { return &r.Priority }, PriorityLatency, PriorityNormal, PriorityBatch),
	},
	{
		Name: "vgpu-gpu", Metavar: "TYPE,...", Forms: "h200,!a100", InStep: "chooses among the job's GPUs; the others are closed to the step",
		Help: "only on GPUs of these types; !TYPE excludes",
		Long: "Only on GPUs of these types; `!TYPE` excludes one.\n\nUpper and lower case are the same, as in `h200,l40s`. `vgpu-gres inventory` prints a node's types.",
		Kind: names(func(r *Request) *Filter { return &r.GPU }, "types", "GPU types as h200 or h200,l40s, or !a100 to exclude", validType),
	},
	{
		Name: "vgpu-uuid", Metavar: "UUID,...", Forms: "GPU-…", Picks: true, InStep: "chooses among the job's GPUs; the others are closed to the step",
		Help: "only on these GPUs; !UUID excludes",
		Long: "Only on these GPUs; `!UUID` excludes one.\n\n`nvidia-smi -L` prints them; `GPU-` and the first eight characters are enough. Most useful to administrators.",
		Kind: names(func(r *Request) *Filter { return &r.UUID }, "uuids",
			"device UUIDs as GPU-1b2c3d4e (8 characters after GPU- at least), or !GPU-1b2c3d4e to exclude", validUUID),
	},
	{
		Name: "vgpu-bind", Metavar: "HOW", InStep: "holds for this step",
		Help: "none: a task sees all of its step's slices; task: one of them, in turn",
		Long: "With `task` each task of a step sees one of its slices, in turn; `none`, the default, shows all.\n\n" +
			"With `task` the first task of a step on a node has the step's first slice in `CUDA_VISIBLE_DEVICES`, the next one the second, and so on. " +
			"Limits are the same either way.",
		Kind: choice(func(r *Request) *Bind { return &r.Bind }, BindNone, BindTask),
	},
}

// Prefixes of the two entries of the job control environment that carry a request.
const (
	ControlRequest  = "VGPU_REQUEST"
	ControlDefaults = "VGPU_DEFAULTS"
)

// ParseOption reads the value of --name into r. Its error is one line for the user, without the
// "vgpu: " prefix: the option with its value, and the accepted forms. r is unchanged on error.
func ParseOption(name, value string, r *Request) error {
	return ParseAs("--"+name, name, value, r)
}

// ParseAs is ParseOption where the user has typed another name.
func ParseAs(typed, name, value string, r *Request) error {
	option, err := named(typed, name)
	if err != nil {
		return err
	}
	return option.read(typed, value, r)
}

func named(typed, name string) (Option, error) {
	for _, option := range Options {
		if option.Name == name {
			return option, nil
		}
	}
	return Option{}, fmt.Errorf("%s: no such vgpu option", shorten(typed))
}

// read takes what a user typed.
func (o Option) read(typed, value string, r *Request) error {
	trimmed := strings.Trim(value, " \t")
	if o.doubt != nil {
		if question := o.doubt(typed, trimmed); question != "" {
			return fmt.Errorf("%s=%s: %s", typed, shorten(value), question)
		}
	}
	return o.take(typed, trimmed, value, r)
}

// take reads a value, whatever it means.
func (o Option) take(typed, value, shown string, r *Request) error {
	parsed := *r
	if !o.parse(value, &parsed) {
		return fmt.Errorf("%s=%s: want %s", typed, shorten(shown), o.Want)
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
