// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

const root = ".."

func TestWhatIsMadeIsCommitted(t *testing.T) {
	texts, err := made(root, parts(request.Options, config.Keys()))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range texts {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is not as its table: run make generate (-made +committed)\n%s", name, diff)
		}
	}
}

// madeUp is an option that is nowhere else: a choice, as most are.
func madeUp() request.Option {
	o := request.Options[slices.IndexFunc(request.Options, func(o request.Option) bool { return o.Name == "vgpu-bind" })]
	o.Name, o.Metavar, o.Help, o.Long, o.InStep = "vgpu-madeup", "HOW", "how it is made up", "How it is made up.", "is made up"
	return o
}

// withMadeUp is a copy of the files that are made, and of those that stand with them, of tables with one option more.
func withMadeUp(t *testing.T) (folder string, texts map[string]string) {
	t.Helper()
	options := append(slices.Clone(request.Options), madeUp())
	texts, err := made(root, parts(options, config.Keys()))
	if err != nil {
		t.Fatal(err)
	}
	folder = t.TempDir()
	for _, dir := range []string{"spank", "gres", "packaging/completions"} {
		if err := os.CopyFS(filepath.Join(folder, dir), os.DirFS(filepath.Join(root, dir))); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range texts {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder, texts
}

func output(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed", program)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
	return string(out)
}

// A row is enough: whoever reads or shows options knows it.
func TestAMadeUpOptionIsEverywhere(t *testing.T) {
	folder, texts := withMadeUp(t)
	for name, says := range map[string]string{
		"spank/rows.h":             `{"vgpu-madeup", "HOW",`,
		"README.md":                "| `--vgpu-madeup=none\\|task` | `VGPU_MADEUP` | How it is made up. |",
		"docs/user.md":             "| `--vgpu-madeup` | how it is made up | is made up |",
		"docs/man/spank_vgpu.so.8": `.BR \-\-vgpu\-madeup= `,
		"docs/man/slurm-vgpu.7":    "\nHow it is made up.\n",
	} {
		if !strings.Contains(texts[name], says) {
			t.Errorf("%s does not have %s", name, says)
		}
	}
	for _, manual := range []string{"docs/man/slurm-vgpu.7", "docs/man/spank_vgpu.so.8"} {
		if !strings.Contains(texts[manual], `", " VGPU_MADEUP`) {
			t.Errorf("%s does not have the variable", manual)
		}
	}
	t.Run("request", func(t *testing.T) {
		defer func(was []request.Option) { request.Options = was }(request.Options)
		request.Options = append(slices.Clone(request.Options), madeUp())
		var r request.Request
		if err := request.ParseOption("vgpu-madeup", "none", &r); err != nil || !strings.Contains(r.Encode(), "madeup=none") ||
			!slices.Contains(r.AsTyped(), "--vgpu-madeup=none") {
			t.Errorf("%v, %s", err, r.Encode())
		}
		if err := request.ParseOption("vgpu-madeup", "x", &r); err == nil || err.Error() != "--vgpu-madeup=x: want none or task" {
			t.Error(err)
		}
		typed := make(request.Texts, len(request.Options))
		typed[len(typed)-1] = "x"
		if _, err := typed.Defaults(make(request.Texts, len(typed))); err == nil || !strings.HasPrefix(err.Error(), "VGPU_MADEUP=x: want") {
			t.Error(err)
		}
	})
	t.Run("plugin", func(t *testing.T) {
		program := filepath.Join(folder, "rows")
		if err := os.WriteFile(program+".c", []byte(`#include <stdio.h>
#include "spank/plan.h"
int main(void)
{
	const struct vgpu_row *last = &vgpu_rows[sizeof(((struct vgpu_step *)0)->option) / VGPU_OPTION_BYTES - 1];
	printf("%s %s %s", last->name, last->usage, last->variable);
}
`), 0o600); err != nil {
			t.Fatal(err)
		}
		output(t, folder, "cc", "-Wall", "-Werror", "-o", program, program+".c")
		if got := output(t, folder, program); got != "vgpu-madeup [vgpu] how it is made up VGPU_MADEUP" {
			t.Errorf("the last row is %s", got)
		}
	})
	t.Run("job_submit", func(t *testing.T) {
		got := output(t, filepath.Join(folder, "gres"), "lua5.1", "-e", `
slurm = { SUCCESS = 0, ERROR = -1, log_user = function(_, text) print(text) end, log_error = function(_, text) print(text) end }
local vgpu = dofile("vgpu.lua")
vgpu.cluster_file = "none"
local function submit(gres, gpus, request) vgpu.job_submit({ gres = gres, tres_per_job = gpus, spank_job_env = { [0] = "VGPU_REQUEST=" .. request } }, {}, 0) end
submit("vgpu:1,gpumem:5", nil, "madeup=task")
submit("vgpu:1,gpumem:5", nil, "madeup=x")
submit(nil, nil, "madeup=task")
vgpu.whole_gpus = true
submit(nil, "gres/gpu:1", "madeup=task")`)
		want := "vgpu: VGPU_REQUEST=madeup=x: this request is malformed: use the --vgpu options\n" +
			"vgpu: --vgpu-madeup=task: say how many slices as well, as in --gres=vgpu:1\n" +
			"vgpu: --vgpu-madeup=task: this is of slices, and the job asks for whole GPUs: use --gres=vgpu:N instead of these\n"
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
	t.Run("completion", func(t *testing.T) {
		got := output(t, filepath.Join(folder, "packaging/completions"), "bash", "--norc", "-c", `. ./slurm-vgpu.bash
offer() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _slurm_vgpu "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"; echo "${COMPREPLY[@]}"; }
offer srun --vgpu-mad
offer srun --vgpu-madeup = t`)
		if got != "--vgpu-madeup=\ntask\n" {
			t.Errorf("offered are %q", got)
		}
	})
}

// A row is enough for the documents too; that it is read, printed and named in errors is seen in internal/config.
func TestAMadeUpKeyIsEverywhere(t *testing.T) {
	keys := config.Keys()
	key := keys[slices.IndexFunc(keys, func(k config.Key) bool { return k.Name == "audit" })]
	key.Name, key.Meaning, key.NotBeside = "made_up", []string{"How it is made up.", "By hand."}, []string{"shards"}
	texts, err := made(root, parts(request.Options, append(keys, key)))
	if err != nil {
		t.Fatal(err)
	}
	for name, says := range map[string]string{
		"packaging/config.yaml.example":     "\n# How it is made up.\n# Not beside shards.\n# off     ",
		"docs/man/slurm-vgpu-config.yaml.5": ".TP\n.BR made_up \" (off, log or cancel; default \" log )\nHow it is made up.\nBy hand.\nNot beside \\fBshards\\fP.\n.RS\n.TP\n.B off\n",
	} {
		if !strings.Contains(texts[name], says) {
			t.Errorf("%s does not have %s", name, says)
		}
	}
	if !strings.Contains(texts["packaging/config.yaml.example"], "\n#made_up: log\n") {
		t.Error("config.yaml.example does not have its default")
	}
}

// whole are the tables, and what is made of them from the first line to the last.
var whole = map[string]bool{"internal/request/option.go": true, "spank/rows.h": true, "packaging/config.yaml.example": true}

var block = regexp.MustCompile(`(?s)begin generated .*?end generated`)

// A list of all options, or of all keys, that is kept by hand would lack the next one.
func TestNoListIsKeptByHand(t *testing.T) {
	options, keys := []*regexp.Regexp{}, []*regexp.Regexp{}
	for _, o := range request.Options {
		options = append(options, regexp.MustCompile(`--`+o.Name+`\b|\b`+o.Env()+`\b`))
	}
	for _, k := range config.Keys() {
		keys = append(keys, regexp.MustCompile(`\b`+k.Name[strings.LastIndex(k.Name, ".")+1:]+`\b`))
	}
	listed := strings.Fields(output(t, root, "git", "ls-files", "-co", "--exclude-standard"))
	for _, name := range listed {
		history := name == "CHANGELOG.md" || strings.HasPrefix(name, "docs/decisions/") || strings.HasPrefix(name, "docs/verified/")
		if history || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_test.lua") || whole[name] {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue // a link, or removed, and git was not told yet
		}
		text := strings.ReplaceAll(block.ReplaceAllString(string(data), ""), `\-`, "-")
		lacks := func(one *regexp.Regexp) bool { return !one.MatchString(text) }
		if !slices.ContainsFunc(options, lacks) || !slices.ContainsFunc(keys, lacks) {
			t.Errorf("%s names every option or every key outside of what is made of the table", name)
		}
	}
}
