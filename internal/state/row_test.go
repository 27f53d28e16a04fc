// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// filled has something in every field, of slices and of what stands in them, so that none is left out of the row.
func filled(t testing.TB) Slice {
	t.Helper()
	var s Slice
	var fill func(v reflect.Value)
	n := int64(0)
	fill = func(v reflect.Value) {
		n++
		switch {
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				fill(v.Field(i))
			}
		case v.Kind() == reflect.String:
			v.SetString(fmt.Sprintf("GPU-%d", n))
		case v.Kind() == reflect.Bool:
			v.SetBool(true)
		case v.Type() == reflect.TypeFor[device.Priority]():
			v.SetInt(int64(device.PriorityLatency))
		case v.CanInt():
			v.SetInt(n)
		case v.CanUint():
			v.SetUint(uint64(n))
		default:
			t.Fatalf("a field is %s, which nothing here fills", v.Type())
		}
	}
	fill(reflect.ValueOf(&s).Elem())
	return s
}

// variants are slices as they come and as they may come.
func variants(t testing.TB) []Slice {
	zero := Slice{Job: 1, Slice: device.Slice{Device: "GPU-a", MemMiB: 1}}
	most := filled(t)
	most.Job, most.UID = math.MaxUint32, math.MaxUint32
	most.MemMiB, most.MostMiB = math.MaxInt64, math.MaxInt64
	below := filled(t)
	below.Restart, below.SMPercent, below.Index, below.Minor, below.MostMiB = -1, -30, -1, -1, -1
	below.Since, below.Priority = -1500, device.PriorityBatch
	later := filled(t)
	later.Since = 5000
	later.Ends = math.MaxInt64
	odd := filled(t)
	odd.Device = "GPU \"\n] <é>"
	all := []Slice{zero, filled(t), most, below, later, odd}
	for job := range uint32(maxGPUs - 30) {
		s := sliceOf(job + 1)
		s.Device = device.UUID(fmt.Sprintf("MIG-%d", job))
		all = append(all, s, sliceOf(job+1))
	}
	return all
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	all := variants(t)
	for _, slices := range [][]Slice{{}, all[:1], all} {
		data := encoded(t, slices...)
		got, _, err := decode(data)
		if err != nil {
			t.Fatalf("%v:\n%s", err, data)
		}
		if diff := cmp.Diff(slices, got.Slices); diff != "" || got.BootID != testBoot {
			t.Error(got.BootID, diff)
		}
	}
}

// Builds read each other's files, in both directions, under jobs that run: these are the bytes that they agree on.
const (
	agreed = `{"version":2,"boot_id":"boot-1","checksum":"crc32c:ffc8da7c",
"gpus":[
{"device":"GPU-a","nvml_index":0,"minor":3},
{"device":"MIG-b","nvml_index":1,"minor":1}
],
"columns":["job","uid","gpu","mem_mib","since_ms","turns_layout","sm_percent","ends","restart","elastic","most_mib","priority"],
"slices":[
[7,1000,0,3000,1795230000123,0,30,1795233600,2,1,6000,-1],
[8,0,1,1]
]}
`
	withoutPriority = `{"version":2,"boot_id":"boot-1","checksum":"crc32c:c4f07495",
"gpus":[
{"device":"GPU-a","nvml_index":0,"minor":3},
{"device":"MIG-b","nvml_index":1,"minor":1}
],
"columns":["job","uid","gpu","mem_mib","since_ms","turns_layout","sm_percent","ends","restart","elastic","most_mib"],
"slices":[
[7,1000,0,3000,1795230000123,7,30,1795233600,2,1,6000],
[8,0,1,1]
]}
`
)

func TestTheFileIsWhatOtherBuildsReadAndWrite(t *testing.T) {
	want := []Slice{
		{Job: 7, UID: 1000, Restart: 2, Since: 1795230000123, Ends: 1795233600, Elastic: true,
			Slice: device.Slice{Device: "GPU-a", Minor: 3, MemMiB: 3000, SMPercent: 30, MostMiB: 6000, Priority: device.PriorityBatch}},
		{Job: 8, Slice: device.Slice{Device: "MIG-b", Index: 1, Minor: 1, MemMiB: 1}},
	}
	if text := string(encoded(t, want...)); text != agreed {
		t.Error(cmp.Diff(agreed, text))
	}
	if got, _, err := decode([]byte(agreed)); err != nil || !cmp.Equal(want, got.Slices) {
		t.Errorf("%+v, %v", got, err)
	}
	want[0].Priority = device.PriorityNormal
	if got, _, err := decode([]byte(withoutPriority)); err != nil || !cmp.Equal(want, got.Slices) {
		t.Errorf("where a column is missing: %+v, %v", got, err)
	}
}

// Every bit of the file counts: none can change without the file being damaged, or saying the same.
func TestNoBitChangesUnseen(t *testing.T) {
	data := encoded(t, filled(t), sliceOf(2))
	want, _, err := decode(data)
	if err != nil {
		t.Fatal(err)
	}
	for at := range data {
		for bit := range 8 {
			data[at] ^= 1 << bit
			if got, _, err := decode(data); err == nil && !cmp.Equal(got, want) {
				t.Errorf("bit %d of byte %d (%q) makes it %+v", bit, at, data[at], got)
			}
			data[at] ^= 1 << bit
		}
	}
	for length := range data {
		if got, _, err := decode(data[:length]); err == nil {
			t.Errorf("its first %d bytes are %+v", length, got)
		}
	}
}

// A GPU stays in the table when its last slice goes, until there are more of them than any node has.
func TestTheTableForgetsGPUs(t *testing.T) {
	held := []Slice{sliceOf(1)}
	var known []gpu
	for n := range maxGPUs {
		known = append(known, gpu{Device: device.UUID(fmt.Sprintf("MIG-%d", n))})
	}
	known = gpusOf(known, held)
	if len(known) != maxGPUs+1 {
		t.Fatalf("%d GPUs are known", len(known))
	}
	if diff := cmp.Diff([]gpu{held[0].on()}, gpusOf(known, held)); diff != "" {
		t.Error(diff)
	}
}

// Whoever can make a state file makes its checksum too: what it says must be slices all the same.
func TestWhatIsNoSliceIsDamage(t *testing.T) {
	fileOf := func(from, to string) []byte {
		_, body, _ := strings.Cut(strings.Replace(agreed, from, to, 1), "\n")
		first, err := header(testBoot, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return append(first, body...)
	}
	const row = "[8,0,1,1]"
	if _, _, err := decode(fileOf(row, row)); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{
		"[0,0,0,1]", "[1,0,2,1]", "[1,0,-1,1]", "[1,0,0,0]", "[1,0,0,-1]", "[1,0,0]", "[]", "null", "7", `"row"`, "{}", "[1,0,0,1,5,0,0,0,0,2]", "[1,-1,0,1]",
		"[1,4294967296,0,1]", "[-1,0,0,1]", "[1,0,0,9223372036854775808]", "[1,0,0,1,5.1]", "[1,0,0,1,0,0,0,0,0,0,5,2]", "[1,0,0,1,0,0,0,0,0,0,5,257]",
		"[1,0,0,1,0,0,0,0,0,0,5,1,1]", `[1,0,0,"1"]`, "[1,0,0,1", "[01,0,0,1]",
	} {
		if got, _, err := decode(fileOf(row, wrong)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s is %+v, %v", wrong, got.Slices, err)
		}
	}
	for from, to := range map[string]string{`"job","uid"`: `"uid","job"`, `"priority"]`: `"priority","later"]`, `,"most_mib","priority"]`: `]`} {
		if got, _, err := decode(fileOf(from, to)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("with columns %s: %+v, %v", to, got, err)
		}
	}
}
