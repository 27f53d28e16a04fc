// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package device

import "testing"

func TestByUUID(t *testing.T) {
	inv := Inventory{GPUs: []GPU{{UUID: "GPU-a", Index: 1}, {UUID: "GPU-b", Index: 2}}}
	for uuid, index := range map[UUID]NVMLIndex{"GPU-a": 1, "GPU-b": 2} {
		if gpu, ok := inv.ByUUID(uuid); !ok || gpu.Index != index {
			t.Errorf("%s is %+v, %v", uuid, gpu, ok)
		}
	}
	if gpu, ok := inv.ByUUID("GPU-c"); ok || gpu != (GPU{}) {
		t.Errorf("one that is not there is %+v", gpu)
	}
}
