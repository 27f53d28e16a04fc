// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
)

// Who adds a counter to interposer/api/layout.h and no row to StepFigures counts for nobody.
func TestEachCounterOfTheLedgerIsAFigure(t *testing.T) {
	counters := reflect.TypeFor[ledger.DeviceUsage]()
	for i := range counters.NumField() {
		var used ledger.DeviceUsage
		reflect.ValueOf(&used).Elem().Field(i).SetUint(77 << 20)
		if counters.Field(i).Name == "UsedBytes" { // of now: no figure of what was used
			continue
		}
		if cmp.Equal(StepFiguresOf(used), StepFiguresOf(ledger.DeviceUsage{})) {
			t.Errorf("%s is shown nowhere: it needs a row of StepFigures, and its line in StepFiguresOf", counters.Field(i).Name)
		}
	}
}

func TestEachFigureIsCounted(t *testing.T) {
	var used ledger.DeviceUsage
	var counted ledger.TimeDevice
	for _, page := range []reflect.Value{reflect.ValueOf(&used).Elem(), reflect.ValueOf(&counted).Elem()} {
		for i := range page.NumField() {
			if page.Field(i).CanUint() {
				page.Field(i).SetUint(7_000_007)
			}
		}
	}
	figures := reflect.ValueOf(FiguresOf(used, counted))
	for _, f := range reflect.VisibleFields(figures.Type()) {
		if figures.FieldByIndex(f.Index).IsZero() {
			t.Errorf("%s has nothing of what the pages say", f.Name)
		}
	}
}

func TestTimeOfTwo(t *testing.T) {
	none, one, two := Time{UnknownSeconds: 1}, Time{GPUSeconds: new(2.5)}, Time{GPUSeconds: new(4.0), UnknownSeconds: 3, Inexact: true}
	for _, c := range []struct{ got, want Time }{
		{one.Plus(two), Time{GPUSeconds: new(6.5), UnknownSeconds: 3, Inexact: true}},
		{none.Plus(one), Time{GPUSeconds: new(2.5), UnknownSeconds: 1}},
		{one.Plus(none), Time{GPUSeconds: new(2.5), UnknownSeconds: 1}},
		{none.Plus(none), Time{UnknownSeconds: 2}},
		{two.Since(one), Time{GPUSeconds: new(1.5), UnknownSeconds: 3, Inexact: true}},
		{two.Since(none), Time{UnknownSeconds: 2, Inexact: true}},
		{none.Since(two), Time{UnknownSeconds: -2}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Error(diff)
		}
	}
}
