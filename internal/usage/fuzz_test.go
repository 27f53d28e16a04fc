// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"os"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// FuzzFinishStep has a job write anything into its ledger: the step's end is not held up, and what is
// kept of it stays within the grant.
func FuzzFinishStep(f *testing.F) {
	f.Add(0, []byte{})
	f.Add(64, bytes.Repeat([]byte{0xff}, 4096))
	f.Add(0, bytes.Repeat([]byte{0xff}, 64+4*128+256*520+1024*320+128))
	f.Add(24, []byte{0xff, 0xff, 0xff, 0x7f})
	f.Add(64+4*128, bytes.Repeat([]byte{1, 0, 0, 0, 0, 0, 0, 0}, 5000))
	f.Fuzz(func(t *testing.T, at int, garbage []byte) {
		g := twoSlices()
		dir := jobFolder(t, g)
		if _, err := grant.Prepare(dir, g, 0, "0", request.Request{}, nil); err != nil {
			t.Fatal(err)
		}
		page, err := os.OpenFile(dir.Ledger(g.Job), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer page.Close()
		if _, err := page.WriteAt(garbage, int64(max(0, at)%(1<<20))); err != nil {
			t.Fatal(err)
		}
		if err := FinishStep(dir, g.Job, 0, "0"); err != nil {
			t.Fatal(err)
		}
		totals, _ := Collect(dir, g)
		if len(totals.Devices) != len(g.Slices) || len(totals.Steps) != 1 {
			t.Fatalf("%d devices, %d steps", len(totals.Devices), len(totals.Steps))
		}
		for i, limit := range g.Bounds().Bytes {
			if d := totals.Devices[i]; d.PeakBytes > limit || d.UsedBytes > limit {
				t.Errorf("device %d: %+v of %d", i, d, limit)
			}
			if d := totals.Steps[0].Devices; len(d) > i && d[i].PeakBytes > limit {
				t.Errorf("step, device %d: %+v of %d", i, d[i], limit)
			}
		}
	})
}
