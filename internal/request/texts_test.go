// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// texts are the options "name=text", in their places.
func texts(given ...string) Texts {
	all := make(Texts, len(Options))
	for i, option := range Options {
		for _, one := range given {
			if text, ok := strings.CutPrefix(one, option.Name+"="); ok {
				all[i] = text
			}
		}
	}
	return all
}

func TestTextsBecomeARequest(t *testing.T) {
	r, err := texts("vgpu-cores=30", "vgpu-mem=2G").Request()
	if diff := cmp.Diff(Request{Mem: Mem{MiB: 2048}, SMPercent: 30}, r); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if r, err := texts().Request(); err != nil || !r.IsZero() {
		t.Errorf("no options: %+v, %v", r, err)
	}
	if _, err := texts("vgpu-mem=2G", "vgpu-cores=101").Request(); err == nil || !strings.HasPrefix(err.Error(), "--vgpu-cores=101: want") {
		t.Errorf("cores 101: %v", err)
	}
	if first := texts("vgpu-cores=5", "vgpu-place=x").First(); first != "--vgpu-cores=5" {
		t.Errorf("the first is %q", first)
	}
	if first := texts().First(); first != "" {
		t.Errorf("the first of none is %q", first)
	}
}

func TestTextsAreSpelledAsTheyWereTyped(t *testing.T) {
	most := strings.Repeat("x", MaxWireBytes-len("gpu=")-1)
	for want, given := range map[string]Texts{
		"":                 texts(),
		"mem=2G;cores=030": texts("vgpu-mem=2G", "vgpu-cores=030"),
		"cores=5":          texts("vgpu-mem=2G;cores=100", "vgpu-cores=5"), // could be misread
		"gpu=" + most:      texts("vgpu-gpu="+most, "vgpu-bind=x"),         // more would not fit
	} {
		if got := given.Spelled(); got != want {
			t.Errorf("got %.80q, want %.80q", got, want)
		}
	}
	if got := texts("vgpu-gpu=" + most + "x").Spelled(); got != "" {
		t.Errorf("more than fits: %d bytes", len(got))
	}
}

func TestDefaultsOfVariables(t *testing.T) {
	r, err := texts("vgpu-mem=garbage", "vgpu-place=spread").Defaults(texts("vgpu-mem=3000"))
	if diff := cmp.Diff(Request{Place: PlaceSpread}, r); err != nil || diff != "" {
		t.Errorf("a variable behind an option that was typed: %v %s", err, diff)
	}
	r, err = texts("vgpu-mem=8X", "vgpu-cores=101", "vgpu-gpu=h200").Defaults(texts())
	want := "VGPU_MEM=8X: want MiB as 3000 or 3000M, GiB as 8G or 1.5G, or a share of the GPU as 25%\n" +
		"VGPU_CORES=101: want a percentage of GPU time from 1 to 100, as 30 or 30%, or 0 for no cap"
	if err == nil || err.Error() != want || r.Encode() != "gpu=h200" {
		t.Errorf("%v, want %s; and %s", err, want, r.Encode())
	}
}

// Every row has what is shown of it; srun --help keeps a name and its metavar of 20 characters on one line.
func TestRowsAreWhole(t *testing.T) {
	for _, o := range Options {
		ascii := strings.IndexFunc(o.Help+o.Metavar, func(r rune) bool { return r < ' ' || r > '~' }) < 0
		if !ascii || o.Help == "" || o.Metavar == "" || o.Long == "" || o.InStep == "" || o.Lua == "" || o.Want == "" || o.Values == nil && o.Forms == "" {
			t.Errorf("--%s: something is missing, or srun cannot print it", o.Name)
		}
		if len(o.Name+o.Metavar) > 20 || !strings.HasPrefix(o.Name, "vgpu-") || strings.Trim(o.Key(), "abcdefghijklmnopqrstuvwxyz") != "" {
			t.Errorf("--%s %s: too long, or not vgpu- and small letters, as which Lua reads it", o.Name, o.Metavar)
		}
	}
}

func TestBeyond(t *testing.T) {
	job := Request{Mem: Mem{MiB: 5}, SMPercent: 30, Place: PlacePack, GPU: Filter{Only: []string{"a"}}, Bind: BindTask}
	if diff := cmp.Diff(Request{}, job.Beyond(job)); diff != "" {
		t.Errorf("what is repeated is left: %s", diff)
	}
	step := Request{Mem: Mem{MiB: 4}, Uncapped: true, Place: PlacePack, GPU: Filter{Only: []string{"b"}}}
	if diff := cmp.Diff(Request{Mem: Mem{MiB: 4}, Uncapped: true, GPU: Filter{Only: []string{"b"}}}, step.Beyond(job)); diff != "" {
		t.Error(diff)
	}
}
