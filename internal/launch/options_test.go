// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

func TestEncodeOptions(t *testing.T) {
	got, err := EncodeOptions([]Option{{"vgpu-cores", "30"}, {"vgpu-mem", "2G"}})
	if want := "mem=2048;cores=30"; err != nil || got != want {
		t.Errorf("got %q and %v, want %q", got, err, want)
	}
	if got, err := EncodeOptions(nil); err != nil || got != "" {
		t.Errorf("no options: got %q and %v", got, err)
	}
	if _, err := EncodeOptions([]Option{{"vgpu-mem", "2G"}, {"vgpu-cores", "101"}}); err == nil {
		t.Error("cores 101: want an error")
	}
}

func TestOptionsAreSpelledAsTheyWereTyped(t *testing.T) {
	most := strings.Repeat("x", request.MaxWireBytes-len("gpu=")-1)
	for want, options := range map[string][]Option{
		"":                      nil,
		"mem=2G;cores=030":      {{"vgpu-mem", "2G"}, {"vgpu-cores", "030"}},
		"cores=5":               {{"vgpu-mem", "2G;cores=100"}, {"vgpu-cores", "5"}}, // could be misread
		"gpu=" + most:           {{"vgpu-gpu", most}, {"vgpu-cores", "5"}},           // more would not fit
		"cores=5;place=x;mem=1": {{"vgpu-cores", "5"}, {"vgpu-place", "x"}, {"vgpu-mem", "1"}},
	} {
		if got := SpellOptions(options); got != want {
			t.Errorf("got %.80q, want %.80q", got, want)
		}
	}
	if got := SpellOptions([]Option{{"vgpu-gpu", most + "x"}}); got != "" {
		t.Errorf("more than fits: %d bytes", len(got))
	}
}

func TestEncodeDefaults(t *testing.T) {
	typed := []Option{{"vgpu-mem", "3000"}}
	got, err := EncodeDefaults([]Option{{"vgpu-mem", "garbage"}, {"vgpu-place", "spread"}}, typed)
	if want := "place=spread"; err != nil || got != want {
		t.Errorf("a variable behind a typed option: got %q and %v, want %q", got, err, want)
	}
	_, err = EncodeDefaults([]Option{{"vgpu-mem", "garbage"}, {"vgpu-cores", "101"}}, nil)
	if err == nil || !strings.Contains(err.Error(), "VGPU_MEM=garbage") || !strings.Contains(err.Error(), "VGPU_CORES=101") {
		t.Errorf("got %v, want both variables named", err)
	}
}

func TestCheckOption(t *testing.T) {
	if err := CheckOption("vgpu-mem", "25%"); err != nil {
		t.Error(err)
	}
	if err := CheckOption("vgpu-mem", ""); err == nil || !strings.Contains(err.Error(), "--vgpu-mem") {
		t.Errorf("empty text: got %v, want an error that names the option", err)
	}
}

func TestPreloadLists(t *testing.T) {
	for _, c := range []struct{ list, dropped, prepended string }{
		{"", "", "/l/libslurm-vgpu.so"},
		{"/a.so", "/a.so", "/l/libslurm-vgpu.so:/a.so"},
		{"/a.so /b.so", "/a.so:/b.so", "/l/libslurm-vgpu.so:/a.so:/b.so"},
		{"/l/libslurm-vgpu.so", "", "/l/libslurm-vgpu.so"},
		{"/a.so:/old/libslurm-vgpu.so::/b.so:/l/libslurm-vgpu.so", "/a.so:/b.so", "/l/libslurm-vgpu.so:/a.so:/b.so"},
		{"/a/libslurm-vgpu.so.bak", "/a/libslurm-vgpu.so.bak", "/l/libslurm-vgpu.so:/a/libslurm-vgpu.so.bak"},
	} {
		if got := DropPreload(c.list); got != c.dropped {
			t.Errorf("DropPreload(%q) = %q, want %q", c.list, got, c.dropped)
		}
		got := prependPreload(c.list, "/l/libslurm-vgpu.so")
		if got != c.prepended {
			t.Errorf("prependPreload(%q) = %q, want %q", c.list, got, c.prepended)
		}
		if again := prependPreload(got, "/l/libslurm-vgpu.so"); again != got {
			t.Errorf("prependPreload twice: %q, want %q", again, got)
		}
	}
	if got, want := prependPreload("/a.so:/x/other.so", "/x/other.so"), "/x/other.so:/a.so"; got != want {
		t.Errorf("a library of another name: got %q, want %q", got, want)
	}
}
