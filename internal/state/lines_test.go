// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
		case v.Type() == reflect.TypeFor[time.Time]():
			v.Set(reflect.ValueOf(time.Unix(1_700_000_000+n, n).UTC()))
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				fill(v.Field(i))
			}
		case v.Kind() == reflect.String:
			v.SetString(fmt.Sprintf("GPU-%d", n))
		case v.Kind() == reflect.Bool:
			v.SetBool(true)
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
	most.Job, most.UID, most.Turns = math.MaxUint32, math.MaxUint32, math.MaxUint32
	most.MemMiB, most.MostMiB = 1e17, 1e17
	below := filled(t)
	below.Restart, below.SMPercent, below.Index, below.Minor, below.MostMiB = -1, -30, -1, -1, -1
	elsewhere := filled(t)
	elsewhere.Since = elsewhere.Since.In(time.FixedZone("", -9000))
	elsewhere.Ends = time.Date(9999, 2, 28, 23, 59, 59, 999_999_999, time.UTC)
	all := []Slice{zero, filled(t), most, below, elsewhere}
	for job := range uint32(3 * maxNames) {
		s := sliceOf(job + 1)
		s.Device = device.UUID(fmt.Sprintf("MIG-%d", job))
		all = append(all, s, sliceOf(job+1))
	}
	return all
}

func TestWhatIsWrittenIsReadByDecodeOursWordForWord(t *testing.T) {
	all := variants(t)
	for _, slices := range [][]Slice{nil, all[:1], all} {
		data, err := imageOf(slices...).encode()
		if err != nil {
			t.Fatal(err)
		}
		got, ok := decodeOurs(data)
		if !ok {
			t.Fatalf("%d slices are left to encoding/json:\n%s", len(slices), data)
		}
		if diff := cmp.Diff(slices, got.Slices); diff != "" || got.BootID != testBoot {
			t.Error(got.BootID, diff)
		}
		// What stood there is written again, and is what encoding/json writes.
		again, err := got.encode()
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("%v, it was\n%s\nand is\n%s", err, data, again)
		}
		var whole struct{ Slices []Slice }
		if err := json.Unmarshal(data, &whole); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got.Slices, whole.Slices, cmp.Comparer(func(a, b time.Time) bool { return a == b || a.Equal(b) })); len(slices) > 0 && diff != "" {
			t.Error(diff)
		}
	}
}

// What another release or a person wrote is read as well, with its checksum; and is written as this release writes.
func TestOtherWritingsAreReadByEncodingJSON(t *testing.T) {
	line, err := json.Marshal(filled(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, list := range map[string]string{
		"a field of a later release": "[\n" + strings.Replace(string(line), `,"uid"`, `,"new":{"a":[1]},"uid"`, 1) + "\n]",
		"spaces":                     "[\n" + strings.ReplaceAll(string(line), `,"`, `, "`) + "\n]",
		"one line":                   "[" + string(line) + "]",
		"another order":              "[\n" + strings.Replace(string(line), `{"job":1`, `{"minor":1,"job":1`, 1) + "\n]",
		"an escaped name":            "[\n" + strings.Replace(string(line), `"GPU-`, `"\u0047PU-`, 1) + "\n]",
		"a field twice":              "[\n" + strings.Replace(string(line), `"mem_mib":`, `"mem_mib":5,"mem_mib":`, 1) + "\n]",
	} {
		t.Run(name, func(t *testing.T) {
			f := file{Version: Version, BootID: testBoot, Slices: json.RawMessage(list)}
			for _, data := range []string{
				fmt.Sprintf("{\"version\":1,\"boot_id\":%q,\"checksum\":%q,\n\"slices\":%s}\n", testBoot, f.sum(), list),
				fmt.Sprintf("{\"slices\":%s,\"later\":[1],\"version\":1,\"checksum\":%q,\"boot_id\":%q}", list, f.sum(), testBoot),
				fmt.Sprintf("{\"version\":1,\"boot_id\":%q,\"checksum\":%q,\n\"slices\":%s,\"later\":[\n]}\n", testBoot, f.sum(), list),
			} {
				got, err := decode([]byte(data))
				if err != nil {
					t.Fatalf("%v:\n%s", err, data)
				}
				if diff := cmp.Diff([]Slice{filled(t)}, got.Slices); diff != "" {
					t.Error(diff)
				}
				again, err := got.encode()
				if _, ok := decodeOurs(again); err != nil || !ok {
					t.Errorf("%v, it is written as\n%s", err, again)
				}
			}
		})
	}
}

// Every bit of the file counts: none can change without the file being damaged, or saying the same.
func TestNoBitChangesUnseen(t *testing.T) {
	data, err := imageOf(filled(t), sliceOf(2)).encode()
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
		if got, err := decode(data[:length]); err == nil && !cmp.Equal(got.State, want.State) {
			t.Errorf("its first %d bytes are %+v", length, got.State)
		}
	}
}

// What decodeOurs takes for a slice is what encoding/json takes for one.
func FuzzCutSlice(f *testing.F) {
	for _, s := range variants(f)[:6] {
		line, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
		f.Add(bytes.Replace(line, []byte(`"mem_mib":`), []byte(`"mem_mib":0`), 1))
		f.Add(bytes.Replace(line, []byte(`"uid":`), []byte(`"uid":-`), 1))
		f.Add(bytes.Replace(line, []byte(`"job":`), []byte(`"job":9999999999`), 1))
		f.Add(bytes.Replace(line, []byte("GPU-"), []byte("GPU\\"), 1))
		f.Add(bytes.Replace(line, []byte("GPU-"), []byte{0xff, '\n'}, 1))
		f.Add(bytes.Replace(line, []byte("T"), []byte("t"), 1))
		f.Add(line[:len(line)-1])
		f.Add(append(line, '}'))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var ours, theirs Slice
		if !cutSlice(line, &ours, &names{}) {
			return
		}
		if err := json.Unmarshal(line, &theirs); err != nil {
			t.Fatalf("encoding/json reads none: %v\n%s", err, line)
		}
		if !ours.Since.Equal(theirs.Since) || !ours.Ends.Equal(theirs.Ends) {
			t.Errorf("%v to %v, encoding/json has %v to %v", ours.Since, ours.Ends, theirs.Since, theirs.Ends)
		}
		if diff := cmp.Diff(theirs, ours); diff != "" {
			t.Error(diff)
		}
	})
}
