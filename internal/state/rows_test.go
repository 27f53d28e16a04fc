// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// filled has something in every field, of slices and of what stands in them, so that none is left out of the line.
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
	most.Job, most.UID, most.Vgpud = math.MaxUint32, math.MaxUint32, math.MaxUint32
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
		data, err := joined(imageOf(slices...).encode())
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(data)
		if err != nil {
			t.Fatalf("%v:\n%s", err, data)
		}
		if diff := cmp.Diff(slices, got.Slices); diff != "" || got.BootID != testBoot {
			t.Error(got.BootID, diff)
		}
		// What stood there is written again, as it is.
		again, err := got.encode()
		if err != nil || !bytes.Equal(bytes.Join(again, nil), data) {
			t.Errorf("%v, it was\n%s\nand is\n%s", err, data, bytes.Join(again, nil))
		}
		if len(slices) > 0 && len(again) != 5 { // header, table, "\n", rows, end
			t.Errorf("%d parts, where all rows stood one after another", len(again))
		}
	}
}

// The file is JSON, and says what its columns are.
func TestTheFileIsJSON(t *testing.T) {
	want := filled(t)
	data, err := joined(imageOf(sliceOf(1), want).encode())
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Version int             `json:"version"`
		BootID  string          `json:"boot_id"`
		GPUs    []gpu           `json:"gpus"`
		Columns []string        `json:"columns"`
		Slices  [][]json.Number `json:"slices"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatalf("%v:\n%s", err, data)
	}
	row := make(map[string]string)
	for n, value := range file.Slices[1] {
		row[file.Columns[n]] = value.String()
	}
	if diff := cmp.Diff(map[string]string{
		"job": fmt.Sprint(want.Job), "restart": fmt.Sprint(want.Restart), "uid": fmt.Sprint(want.UID),
		"since_ms": fmt.Sprint(want.Since), "turns_layout": fmt.Sprint(want.Vgpud), "elastic": "1",
		"ends": fmt.Sprint(want.Ends), "gpu": "1",
		"mem_mib": fmt.Sprint(want.MemMiB), "sm_percent": fmt.Sprint(want.SMPercent), "most_mib": fmt.Sprint(want.MostMiB), "priority": "1",
	}, row); diff != "" || file.Version != Version || file.BootID != testBoot {
		t.Error(diff, file)
	}
	if on := file.GPUs[1]; on != (gpu{want.Device, want.Index, want.Minor}) {
		t.Errorf("it is on %+v", on)
	}
}

// A file without priorities is, to the byte, what a build from before them writes and reads.
func TestAFileWithoutPrioritiesIsAsItWas(t *testing.T) {
	plain, batch := sliceOf(1), sliceOf(2)
	batch.Priority = device.PriorityBatch
	for name, tc := range map[string]struct {
		slices  []Slice
		columns string
	}{
		"none":           {nil, `"most_mib"],`},
		"normal":         {[]Slice{plain}, `"most_mib"],`},
		"batch":          {[]Slice{plain, batch}, `"most_mib","priority"],`},
		"back to normal": {[]Slice{plain, sliceOf(2)}, `"most_mib"],`},
	} {
		data, err := joined(imageOf(tc.slices...).encode())
		if err != nil || !bytes.Contains(data, []byte(tc.columns+"\n")) || bytes.Count(data, []byte(tc.columns)) != 1 {
			t.Errorf("%s: %v, want %s in\n%s", name, err, tc.columns, data)
		}
		if got, err := decode(data); err != nil || !cmp.Equal(got.Slices, tc.slices, cmpopts.EquateEmpty()) {
			t.Errorf("%s: %v, read as %+v", name, err, got.Slices)
		}
	}
}

// A file of the first version is read, with its checksum, and written as this release writes.
func TestAFileOfObjectsIsRead(t *testing.T) {
	want := filled(t)
	want.Ends = 0 // it is not asked for there
	line, err := json.Marshal(struct {
		Slice
		Since time.Time `json:"since"`
	}{want, want.Since.Time()})
	if err != nil {
		t.Fatal(err)
	}
	sum := func(list string) string {
		return fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Appendf(nil, "1\n%s\n%s", testBoot, list)))
	}
	list := "[\n" + string(line) + "\n]"
	for name, list := range map[string]string{
		"as it was written":          list,
		"a field of a later release": strings.Replace(list, `,"uid"`, `,"new":{"a":[1]},"uid"`, 1),
		"spaces":                     strings.ReplaceAll(list, `,"`, `, "`),
	} {
		t.Run(name, func(t *testing.T) {
			data := fmt.Sprintf("{\"version\":1,\"boot_id\":%q,\"checksum\":%q,\n\"slices\":%s}\n", testBoot, sum(list), list)
			got, err := decode([]byte(data))
			if err != nil {
				t.Fatalf("%v:\n%s", err, data)
			}
			if diff := cmp.Diff([]Slice{want}, got.Slices); diff != "" {
				t.Error(diff)
			}
			again, err := joined(got.encode())
			if err != nil {
				t.Fatal(err)
			}
			if got, err = decode(again); err != nil || !cmp.Equal([]Slice{want}, got.Slices) {
				t.Errorf("%v, it is written as\n%s", err, again)
			}
			data = strings.Replace(data, `"mem_mib":`, `"mem_mib":1`, 1)
			if got, err := decode([]byte(data)); !errors.Is(err, ErrCorrupt) {
				t.Errorf("changed by hand it is %+v, %v", got, err)
			}
		})
	}
}

// Every bit of the file counts: none can change without the file being damaged, or saying the same.
func TestNoBitChangesUnseen(t *testing.T) {
	data, err := joined(imageOf(filled(t), sliceOf(2)).encode())
	if err != nil {
		t.Fatal(err)
	}
	want, err := decode(data)
	if err != nil {
		t.Fatal(err)
	}
	for at := range data {
		for bit := range 8 {
			data[at] ^= 1 << bit
			if got, err := decode(data); err == nil && !cmp.Equal(got.State, want.State) {
				t.Errorf("bit %d of byte %d (%q) makes it %+v", bit, at, data[at], got.State)
			}
			data[at] ^= 1 << bit
		}
	}
	for length := range data {
		if got, err := decode(data[:length]); err == nil {
			t.Errorf("its first %d bytes are %+v", length, got.State)
		}
	}
}

// A table of more GPUs than any node has is made anew from what is held.
func TestTheTableForgetsGPUs(t *testing.T) {
	var all []Slice
	for job := range uint32(maxGPUs + 1) {
		s := sliceOf(job + 1)
		s.Device = device.UUID(fmt.Sprintf("MIG-%d", job))
		all = append(all, s)
	}
	data, err := joined(imageOf(all...).encode())
	if err != nil {
		t.Fatal(err)
	}
	before, err := decode(data)
	if err != nil || len(before.gpus.keys) != maxGPUs+1 {
		t.Fatalf("%d GPUs, %v", len(before.gpus.keys), err)
	}
	before.Slices, before.rows = before.Slices[maxGPUs:], before.rows[maxGPUs:]
	if data, err = joined(before.encode()); err != nil {
		t.Fatal(err)
	}
	if after, err := decode(data); err != nil || len(after.gpus.keys) != 1 || !cmp.Equal(after.Slices, all[maxGPUs:]) {
		t.Errorf("%+v, %v", after, err)
	}
}

// What appendRow does not write is no row, whatever its checksum says.
func TestWhatIsNoRow(t *testing.T) {
	row := string(appendRow(nil, new(filled(t)), new(places[gpu])))
	gpus := []gpu{{Device: "GPU-a"}}
	if _, _, err := cutRows([]byte("\n"+row), gpus); err != nil {
		t.Fatalf("%s: %v", row, err)
	}
	for _, wrong := range []string{
		row, "\n", "\n\n", "\n" + row + ",", "\n" + row + ",\n", "\n" + row + "\n" + row, "\n" + row + ",\n\n" + row, "\n " + row, "\n" + row[1:],
		"\n[0,0,0,1]", "\n[1,0,1,1]", "\n[1,0,0,0]", "\n[1,0,0]", "\n[1,0,0,1,]", "\n[1,0,0,1", "\n[1,0,0,1]]", "\n[1,0,,1]", "\n[1,0,-1,1]", "\n[01,0,0,1]",
		"\n[1,0,0,1,0]", "\n[1,0,0,1,5,0]", "\n[1,0,0,1,0,0,0,0,0,2]", "\n[1,0,0,1,0,0,0,0,-0,1]", "\n[1,-1,0,1]", "\n[1,4294967296,0,1]", "\n[-1,0,0,1]",
		"\n[1,0,0,9223372036854775808]", "\n[1,0,0,99999999999999999999]", "\n[1,0,0,1,5.1]", "\n[1,0,0,1,0,0,0,0,0,0,5,2]", "\n[1,0,0,1,0,0,0,0,0,0,5,-2]", "\n[1,0,0,1,0,0,0,0,0,0,5,257]", "\n[1,0,0,1,0,0,0,0,0,0,5,1,1]", "\n[1,0,0,1 ]", "\n[1,0,0,\"1\"]",
	} {
		if slices, _, err := cutRows([]byte(wrong), gpus); err == nil {
			t.Errorf("%q is %+v", wrong, slices)
		}
	}
}

// What is read as a row is the row of that slice.
func FuzzRows(f *testing.F) {
	gpus := []gpu{{"GPU-a", 0, 0}, {"GPU-b", 1, 2}}
	for _, s := range variants(f)[:6] {
		row := appendRow([]byte{'\n'}, &s, &places[gpu]{keys: gpus})
		f.Add(row)
		f.Add(append(append(row, lineEnds...), row[1:]...))
		f.Add(row[:len(row)-1])
		f.Add(bytes.Replace(row, []byte(","), []byte(",0"), 1))
		f.Add(bytes.Replace(row, []byte(","), []byte(",-"), 1))
		f.Add(bytes.Replace(row, []byte("."), []byte(".0"), 1))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		held, rows, err := cutRows(text, gpus)
		if err != nil {
			return
		}
		for i := range held {
			stood := text[rows[i].from:rows[i].to]
			if row := appendRow(nil, &held[i], &places[gpu]{keys: gpus}); !bytes.Equal(row, stood) {
				t.Errorf("%s is read as %+v, which is %s", stood, held[i], row)
			}
		}
	})
}
