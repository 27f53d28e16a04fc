// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var acceptedOptions = []struct {
	name, value string
	want        Request
	wire        string
}{
	{"vgpu-mem", "3000", Request{Mem: Mem{MiB: 3000}}, "mem=3000"},
	{"vgpu-mem", "3000M", Request{Mem: Mem{MiB: 3000}}, "mem=3000"},
	{"vgpu-mem", "3000MiB", Request{Mem: Mem{MiB: 3000}}, "mem=3000"},
	{"vgpu-mem", "8G", Request{Mem: Mem{MiB: 8192}}, "mem=8192"},
	{"vgpu-mem", "8gib", Request{Mem: Mem{MiB: 8192}}, "mem=8192"},
	{"vgpu-mem", "2g", Request{Mem: Mem{MiB: 2048}}, "mem=2048"},
	{"vgpu-mem", "2GB", Request{Mem: Mem{MiB: 2048}}, "mem=2048"},
	{"vgpu-mem", "3000MB", Request{Mem: Mem{MiB: 3000}}, "mem=3000"},
	{"vgpu-mem", "1.5G", Request{Mem: Mem{MiB: 1536}}, "mem=1536"},
	{"vgpu-mem", "0.5GiB", Request{Mem: Mem{MiB: 512}}, "mem=512"},
	{"vgpu-mem", "1.3G", Request{Mem: Mem{MiB: 1331}}, "mem=1331"},
	{"vgpu-mem", "3000.9M", Request{Mem: Mem{MiB: 3000}}, "mem=3000"},
	{"vgpu-mem", " 3000 ", Request{Mem: Mem{MiB: 3000}}, "mem=3000"},
	{"vgpu-mem", "8M", Request{Mem: Mem{MiB: 8}}, "mem=8"},
	{"vgpu-mem", "256", Request{Mem: Mem{MiB: 256}}, "mem=256"},
	{"vgpu-mem", "25%", Request{Mem: Mem{Percent: 25}}, "mem=25%"},
	{"vgpu-mem", "12.50%", Request{Mem: Mem{Percent: 12.5}}, "mem=12.5%"},
	{"vgpu-mem", "100%", Request{Mem: Mem{Percent: 100}}, "mem=100%"},
	{"vgpu-mem", "17179869184", Request{Mem: Mem{MiB: maxMiB}}, "mem=17179869184"},
	{"vgpu-cores", "30", Request{SMPercent: 30}, "cores=30"},
	{"vgpu-cores", "100", Request{SMPercent: 100}, "cores=100"},
	{"vgpu-cores", "30%", Request{SMPercent: 30}, "cores=30"},
	{"vgpu-cores", " 30", Request{SMPercent: 30}, "cores=30"},
	{"vgpu-cores", "0%", Request{Uncapped: true}, "cores=0"},
	{"vgpu-cores", "0", Request{Uncapped: true}, "cores=0"},
	{"vgpu-place", "pack", Request{Place: PlacePack}, "place=pack"},
	{"vgpu-place", "spread", Request{Place: PlaceSpread}, "place=spread"},
	{"vgpu-policy", "elastic", Request{Policy: PolicyElastic}, "policy=elastic"},
	{"vgpu-priority", "latency", Request{Priority: PriorityLatency}, "priority=latency"},
	{"vgpu-priority", "normal", Request{Priority: PriorityNormal}, "priority=normal"},
	{"vgpu-priority", "batch", Request{Priority: PriorityBatch}, "priority=batch"},
	{"vgpu-gpu", "h200,!a100", Request{GPU: Filter{Only: []string{"h200"}, Not: []string{"a100"}}}, "gpu=h200,!a100"},
	{"vgpu-gpu", "!a100,h200", Request{GPU: Filter{Only: []string{"h200"}, Not: []string{"a100"}}}, "gpu=h200,!a100"},
	{"vgpu-uuid", "GPU-1b2c3d4e", Request{UUID: Filter{Only: []string{"GPU-1b2c3d4e"}}}, "uuid=GPU-1b2c3d4e"},
}

func TestParseOptionAccepts(t *testing.T) {
	for _, c := range acceptedOptions {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			var got Request
			if err := ParseOption(c.name, c.value, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if wire := got.Encode(); wire != c.wire {
				t.Errorf("wire form is %q, want %q", wire, c.wire)
			}
			again, err := Decode(c.wire)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, again); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const (
	wantMem   = ": want MiB as 3000 or 3000M, GiB as 8G or 1.5G, or a share of the GPU as 25%"
	wantCores = ": want a percentage of GPU time from 1 to 100, as 30 or 30%, or 0 for no cap"
)

var long = strings.Repeat("9", 300)

var refusedOptions = []struct{ name, value, want string }{
	{"vgpu-mem", "abc", "--vgpu-mem=abc" + wantMem},
	{"vgpu-mem", "", "--vgpu-mem=" + wantMem},
	{"vgpu-mem", "0", "--vgpu-mem=0" + wantMem},
	{"vgpu-mem", "-5", "--vgpu-mem=-5" + wantMem},
	{"vgpu-mem", "+5", "--vgpu-mem=+5" + wantMem},
	{"vgpu-mem", "3T", "--vgpu-mem=3T" + wantMem},
	{"vgpu-mem", "8KB", "--vgpu-mem=8KB" + wantMem},
	{"vgpu-mem", "1.5", "--vgpu-mem=1.5" + wantMem},
	{"vgpu-mem", ".5G", "--vgpu-mem=.5G" + wantMem},
	{"vgpu-mem", "5.G", "--vgpu-mem=5.G" + wantMem},
	{"vgpu-mem", "1.5.2G", "--vgpu-mem=1.5.2G" + wantMem},
	{"vgpu-mem", "1,5G", "--vgpu-mem=1,5G" + wantMem},
	{"vgpu-mem", "0.0G", "--vgpu-mem=0.0G" + wantMem},
	{"vgpu-mem", "0.0001G", "--vgpu-mem=0.0001G" + wantMem},
	{"vgpu-mem", "99999999.9G", "--vgpu-mem=99999999.9G" + wantMem},
	{"vgpu-mem", "8", "--vgpu-mem=8: 8 MiB is less than a CUDA context takes; did you mean --vgpu-mem=8G? 8M is taken as it is"},
	{"vgpu-mem", " 0255 ", `--vgpu-mem=" 0255 ": 255 MiB is less than a CUDA context takes; did you mean --vgpu-mem=255G? 255M is taken as it is`},
	{"vgpu-mem", "1e3", "--vgpu-mem=1e3" + wantMem},
	{"vgpu-mem", "0x10", "--vgpu-mem=0x10" + wantMem},
	{"vgpu-mem", "M", "--vgpu-mem=M" + wantMem},
	{"vgpu-mem", "%", "--vgpu-mem=%" + wantMem},
	{"vgpu-mem", ".5%", "--vgpu-mem=.5%" + wantMem},
	{"vgpu-mem", "5.%", "--vgpu-mem=5.%" + wantMem},
	{"vgpu-mem", "0%", "--vgpu-mem=0%" + wantMem},
	{"vgpu-mem", "0.0%", "--vgpu-mem=0.0%" + wantMem},
	{"vgpu-mem", "100.1%", "--vgpu-mem=100.1%" + wantMem},
	{"vgpu-mem", "1e1%", "--vgpu-mem=1e1%" + wantMem},
	{"vgpu-mem", "nan%", "--vgpu-mem=nan%" + wantMem},
	{"vgpu-mem", "17179869185", "--vgpu-mem=17179869185" + wantMem},
	{"vgpu-mem", "99999999999999999999G", "--vgpu-mem=99999999999999999999G" + wantMem},
	{"vgpu-mem", "9007199254740993G", "--vgpu-mem=9007199254740993G" + wantMem},
	{"vgpu-mem", long, "--vgpu-mem=" + long[:40] + "…" + wantMem},
	{"vgpu-mem", "3 G", `--vgpu-mem="3 G"` + wantMem},
	{"vgpu-mem", "3\n\x1b[31m", `--vgpu-mem="3\n\x1b[31m"` + wantMem},
	{"vgpu-mem", "三", `--vgpu-mem="\u4e09"` + wantMem},
	{"vgpu-cores", "101", "--vgpu-cores=101" + wantCores},
	{"vgpu-cores", "-1", "--vgpu-cores=-1" + wantCores},
	{"vgpu-cores", "30%%", "--vgpu-cores=30%%" + wantCores},
	{"vgpu-cores", "101%", "--vgpu-cores=101%" + wantCores},
	{"vgpu-cores", "%", "--vgpu-cores=%" + wantCores},
	{"vgpu-cores", "0.3", "--vgpu-cores=0.3" + wantCores},
	{"vgpu-cores", "", "--vgpu-cores=" + wantCores},
	{"vgpu-cores", long, "--vgpu-cores=" + long[:40] + "…" + wantCores},
	{"vgpu-place", "Pack", "--vgpu-place=Pack: want pack or spread"},
	{"vgpu-policy", "", "--vgpu-policy=: want cap or elastic"},
	{"vgpu-priority", "high", "--vgpu-priority=high: want latency, normal or batch"},
	{"vgpu-priority", "", "--vgpu-priority=: want latency, normal or batch"},
	{"vgpu-gpu", "h200,", "--vgpu-gpu=h200,: want GPU types as h200 or h200,l40s, or !a100 to exclude"},
	{"vgpu-gpu", "a;b", "--vgpu-gpu=a;b: want GPU types as h200 or h200,l40s, or !a100 to exclude"},
	{"vgpu-uuid", "GPU-123", "--vgpu-uuid=GPU-123: want device UUIDs as GPU-1b2c3d4e (8 characters after GPU- at least), or !GPU-1b2c3d4e to exclude"},
	{"vgpu-uuid", "0", "--vgpu-uuid=0: want device UUIDs as GPU-1b2c3d4e (8 characters after GPU- at least), or !GPU-1b2c3d4e to exclude"},
}

func TestParseOptionRefuses(t *testing.T) {
	for _, c := range refusedOptions {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			before := Request{Mem: Mem{MiB: 7}, SMPercent: 7, GPU: Filter{Only: []string{"x"}}}
			got := before
			err := ParseOption(c.name, c.value, &got)
			if err == nil || err.Error() != c.want {
				t.Errorf("error is %v,\nwant %s", err, c.want)
			}
			if diff := cmp.Diff(before, got); diff != "" {
				t.Errorf("a refused value changed the request: %s", diff)
			}
		})
	}
	if err := ParseOption("vgpu-what", "1", new(Request)); err == nil || err.Error() != "--vgpu-what: no such vgpu option" {
		t.Errorf("an option that is not there: %v", err)
	}
}

func TestParseOptionTakesTheLastValue(t *testing.T) {
	var r Request
	for _, given := range [][2]string{{"vgpu-mem", "25%"}, {"vgpu-mem", "3000"}, {"vgpu-cores", "0"}, {"vgpu-cores", "5"}, {"vgpu-gpu", "a"}, {"vgpu-gpu", "!b"}} {
		if err := ParseOption(given[0], given[1], &r); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := r.Encode(), "mem=3000;cores=5;gpu=!b"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The canonical form is what was read, and no question any more; as a user would type it, it is none either.
func TestFewMiBAreCanonical(t *testing.T) {
	for text, typed := range map[string]string{"mem=8": "--vgpu-mem=8M", "mem=256": "--vgpu-mem=256"} {
		r, err := Decode(text)
		if err != nil || r.AsTyped()[0] != typed {
			t.Errorf("%s: %v, as typed %q, want %s", text, err, r.AsTyped(), typed)
		}
		var again Request
		if err := ParseOption("vgpu-mem", strings.TrimPrefix(typed, "--vgpu-mem="), &again); err != nil || again.Encode() != text {
			t.Errorf("%s: %v, %s", typed, err, again.Encode())
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"mem= 3000", "read vgpu request: --vgpu-mem= 3000: want MiB as 3000 or 3000M, GiB as 8G or 1.5G, or a share of the GPU as 25%"},
		{"mem=1.5G", "read vgpu request mem=1.5G: it is not in canonical form"},
		{"cores=30%", "read vgpu request cores=30%: it is not in canonical form"},
		{"mem=8G", "read vgpu request mem=8G: it is not in canonical form"},
		{"cores=30;mem=3000", "read vgpu request cores=30;mem=3000: it is not in canonical form"},
		{"mem=3000;mem=3000", "read vgpu request mem=3000;mem=3000: it is not in canonical form"},
		{"mem=3000;", "read vgpu request: --vgpu-: no such vgpu option"},
		{"mem", "read vgpu request: --vgpu-mem=: want MiB as 3000 or 3000M, GiB as 8G or 1.5G, or a share of the GPU as 25%"},
		{"cores=030", "read vgpu request cores=030: it is not in canonical form"},
		{"root=1", "read vgpu request: --vgpu-root: no such vgpu option"},
		{strings.Repeat("x", MaxWireBytes+1), "read vgpu request of 2049 bytes: at most 2048 are allowed"},
	} {
		_, err := Decode(c.text)
		if err == nil || strings.ReplaceAll(err.Error(), `"`, "") != strings.ReplaceAll(c.want, `"`, "") {
			t.Errorf("%s: error is %v, want %s", shorten(c.text), err, c.want)
		}
	}
}

func TestFiltersAreBounded(t *testing.T) {
	name := func(bytes int) string { return strings.Repeat("a", bytes) }
	names := func(count, bytes int) string { return strings.TrimSuffix(strings.Repeat(name(bytes)+",", count), ",") }
	for _, c := range []struct {
		value string
		fits  bool
	}{
		{name(maxNameBytes), true}, {name(maxNameBytes + 1), false}, {"!" + name(maxNameBytes), true}, {"!" + name(maxNameBytes+1), false},
		{names(maxFilterNames, 1), true}, {names(maxFilterNames+1, 1), false},
		{names(18, 49), true}, {names(18, 49) + "a", true}, {names(18, 49) + "aa", false}, // 18 times 49 and 17 commas are 899
		{"", false}, {"a,", false}, {",a", false}, {"a,,b", false}, {"!", false}, {"!!a", false},
	} {
		if c.fits && len(c.value) > maxFilterBytes {
			t.Fatalf("%d bytes", len(c.value))
		}
		got, ok := parseFilter(c.value, validType)
		if ok != c.fits || ok != (len(got.Only)+len(got.Not) > 0) {
			t.Errorf("%d bytes, %q: got %v, want %v", len(c.value), c.value, ok, c.fits)
		}
	}
}

func TestTwoFullFiltersFitTheWire(t *testing.T) {
	name := "GPU-" + strings.Repeat("a", 36)
	list := strings.TrimSuffix(strings.Repeat(name+",", maxFilterNames), ",")
	var r Request
	for _, given := range [][2]string{{"vgpu-mem", "33.3333333%"}, {"vgpu-cores", "100"}, {"vgpu-place", "spread"}, {"vgpu-policy", "elastic"}, {"vgpu-gpu", list}, {"vgpu-uuid", list}} {
		if err := ParseOption(given[0], given[1], &r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Decode(r.Encode()); err != nil {
		t.Error(err)
	}
}

func TestFilterAdmits(t *testing.T) {
	for _, c := range []struct {
		filter, gpu string
		want        bool
	}{
		{"h200", "h200", true}, {"H200", "h200", true}, {"h200", "h2000", false}, {"h200", "a100", false},
		{"!h200", "a100", true}, {"!H200", "h200", false}, {"h200,a100", "a100", true}, {"h200,!h200", "h200", false},
	} {
		var r Request
		if err := ParseOption("vgpu-gpu", c.filter, &r); err != nil {
			t.Fatal(err)
		}
		if got := r.GPU.Admits(c.gpu); got != c.want {
			t.Errorf("%s admits %s: %v, want %v", c.filter, c.gpu, got, c.want)
		}
	}
	const uuid = "GPU-1b2c3d4e-0000-1111-2222-333344445555"
	for _, c := range []struct {
		filter string
		want   bool
	}{
		{uuid, true}, {"GPU-1B2C3D4E", true}, {"gpu-1b2c3d4e-0000", true}, {"GPU-1b2c3d4f", false}, {"!GPU-1b2c3d4e", false}, {"!GPU-1b2c3d4f", true}, {"MIG-1b2c3d4e", false},
	} {
		var r Request
		if err := ParseOption("vgpu-uuid", c.filter, &r); err != nil {
			t.Fatal(err)
		}
		if got := r.UUID.AdmitsUUID(uuid); got != c.want {
			t.Errorf("%s admits: %v, want %v", c.filter, got, c.want)
		}
	}
	if !(Filter{}).Admits("anything") || !(Filter{}).AdmitsUUID(uuid) {
		t.Error("the empty filter admits everything")
	}
}

func TestMerge(t *testing.T) {
	defaults := Request{Mem: Mem{Percent: 25}, SMPercent: 30, Place: PlaceSpread, Policy: PolicyElastic, GPU: Filter{Only: []string{"a"}}, UUID: Filter{Not: []string{"GPU-00000000"}}}
	want := defaults
	want.SMPercent = 0 // job_submit made gpucores of it
	if diff := cmp.Diff(want, Merge(Request{}, defaults)); diff != "" {
		t.Error(diff)
	}
	given := Request{Mem: Mem{MiB: 5}, Uncapped: true, Place: PlacePack, Policy: PolicyCap, GPU: Filter{Not: []string{"b"}}, UUID: Filter{Only: []string{"GPU-11111111"}}}
	if diff := cmp.Diff(given, Merge(given, defaults)); diff != "" {
		t.Error(diff)
	}
	if got := Merge(Request{}, Request{Mem: Mem{MiB: 1024}}); !got.IsZero() {
		t.Errorf("memory in MiB was merged: %s", got.Encode())
	}
}

func FuzzParseOption(f *testing.F) {
	for _, option := range Options {
		for _, value := range []string{"3000", "8G", "25%", "pack", "cap", "h200,!a100", "GPU-1b2c3d4e", "", "\x00", "1e9"} {
			f.Add(option.Name, value)
		}
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		var r Request
		if err := ParseOption(name, value, &r); err != nil {
			if strings.ContainsAny(err.Error(), "\n\x1b\x00") {
				t.Errorf("error is not one plain line: %q", err)
			}
			return
		}
		again, err := Decode(r.Encode())
		if err != nil {
			t.Fatalf("%q: %v", r.Encode(), err)
		}
		if diff := cmp.Diff(r, again); diff != "" {
			t.Error(diff)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add("mem=3000;cores=30;place=pack;policy=cap;gpu=h200,!a100;uuid=GPU-1b2c3d4e")
	f.Add("mem=25%")
	f.Add(";=;")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Decode(text)
		if err == nil && r.Encode() != text {
			t.Errorf("%q was read as %q", text, r.Encode())
		}
	})
}
