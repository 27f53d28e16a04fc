// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/jobreport"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/report"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// numbered is the struct with another number in each field.
func numbered[T any](from uint64) (s T) {
	of := reflect.ValueOf(&s).Elem()
	for i := range of.NumField() {
		if of.Field(i).CanUint() {
			of.Field(i).SetUint((from+uint64(i))*8_000_000 + 7) // all flags
		}
	}
	return s
}

// Each row of usage.Figures is in all that is printed or written of a slice, by the name of its tag.
func TestEachFigureIsInEachForm(t *testing.T) {
	figures := usage.FiguresOf(numbered[ledger.DeviceUsage](3), numbered[ledger.TimeDevice](1))
	for form, slice := range map[string]any{
		"record":  usage.Device{Figures: figures},
		"comment": report.CommentSlice{Figures: figures},
		"explain": explainedSlice{Figures: figures},
		"status":  sliceStatus{Figures: figures},
		"report":  jobreport.Slice{Figures: figures},
	} {
		text, err := json.Marshal(slice)
		if err != nil {
			t.Fatal(err)
		}
		var shown map[string]any
		if err := json.Unmarshal(text, &shown); err != nil {
			t.Fatal(err)
		}
		for _, f := range reflect.VisibleFields(reflect.TypeFor[usage.Figures]()) {
			if f.Anonymous {
				continue
			}
			name := f.Tag.Get("json")
			if short, ok := f.Tag.Lookup("comment"); ok && form == "comment" {
				name = short
			}
			name, _, _ = strings.Cut(name, ",")
			want, err := json.Marshal(reflect.ValueOf(figures).FieldByIndex(f.Index).Interface())
			if err != nil {
				t.Fatal(err)
			}
			if is, err := json.Marshal(shown[name]); err != nil || string(is) != string(want) {
				t.Errorf("%s: %s is %s, want %s as %q", form, f.Name, is, want, name)
			}
		}
	}
}

func TestACommentsFiguresAreReadAsTheyWereWritten(t *testing.T) {
	for _, slice := range []report.CommentSlice{{}, {GPU: "GPU-a", MemMiB: 1, Cores: 2, Curve: "1,2", Earlier: []device.Limit{{MemMiB: 3}},
		Figures: usage.FiguresOf(numbered[ledger.DeviceUsage](3), numbered[ledger.TimeDevice](1))}} {
		text, err := json.Marshal(slice)
		if err != nil {
			t.Fatal(err)
		}
		var read report.CommentSlice
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(slice, read); diff != "" {
			t.Error(diff)
		}
	}
}
