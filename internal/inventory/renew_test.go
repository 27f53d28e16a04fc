// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

func TestAFailedGPUIsNotedWhereItIs(t *testing.T) {
	a := device.GPU{UUID: "GPU-a", Index: 0, Minor: 1, PCIBusID: "1", MemMiB: 1000}
	b := device.GPU{UUID: "GPU-b", Index: 1, Minor: 0, PCIBusID: "2", MemMiB: 1000}
	lost := device.GPU{UUID: "unknown-0", Minor: -1, Lost: "handle: off the bus"}
	failed := func(gpu device.GPU, why string, at int64) device.GPU { gpu.Lost, gpu.FailedUnixS = why, at; return gpu }
	moved := b
	moved.Index = 0
	of := func(gpus ...device.GPU) device.Inventory { return device.Inventory{GPUs: gpus} }
	for _, tc := range []struct {
		name            string
		inv, seen, want device.Inventory
		changed         []device.GPU
		others          bool
	}{
		{"all are well", of(a, b), of(a, b), of(a, b), nil, false},
		{"one has fallen off the bus", of(a, b), of(lost, b), of(failed(a, lost.Lost, 7), b), []device.GPU{failed(a, lost.Lost, 7)}, false},
		{"one is not listed any more, and the other has its index", of(a, b), of(moved), of(failed(a, gone, 7), b), []device.GPU{failed(a, gone, 7)}, true},
		{"one answers, and is to be reset", of(a, b), of(a, failed(b, "reset", 0)), of(a, failed(b, "reset", 7)), []device.GPU{failed(b, "reset", 7)}, false},
		{"as it was noted", of(failed(a, lost.Lost, 3), b), of(lost, b), of(failed(a, lost.Lost, 3), b), nil, false},
		{"for another reason by now", of(failed(a, "reset", 3), b), of(lost, b), of(failed(a, lost.Lost, 3), b), []device.GPU{failed(a, lost.Lost, 3)}, false},
		{"it is back", of(failed(a, lost.Lost, 3), b), of(a, b), of(a, b), []device.GPU{a}, false},
		{"lost from the beginning", of(lost, b), of(lost, b), of(lost, b), nil, false},
		{"lost from the beginning, and back", of(lost, b), of(a, b), of(lost, b), nil, true},
		{"of no size from the beginning", of(device.GPU{UUID: "GPU-a", Lost: "memory"}, b), of(a, b), of(device.GPU{UUID: "GPU-a", Lost: "memory"}, b), nil, true},
		{"another one", of(a), of(a, b), of(a), nil, true},
		{"of another size", of(a, b), of(device.GPU{UUID: "GPU-a", Minor: 1, PCIBusID: "1", MemMiB: 2000}, b), of(a, b), nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := of(append([]device.GPU{}, tc.inv.GPUs...)...)
			got, changed := Renew(tc.inv, tc.seen, time.Unix(7, 0))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.changed, changed); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, tc.inv); diff != "" {
				t.Errorf("what was read is written into:\n%s", diff)
			}
			if IsOfOthers(tc.inv, tc.seen) != tc.others {
				t.Errorf("IsOfOthers is %v", !tc.others)
			}
		})
	}
}
