// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// A reporter outlives an upgrade: whatever it does with a record, the figures of the later build stay.
func TestFiguresOfALaterBuildAreKept(t *testing.T) {
	spool := rundir.Spool(t.TempDir())
	rec := sample(7)
	rec.Backfill = true
	mustWrite(t, spool, rec)
	path := filepath.Join(spool.Usage(), "7.0.json")
	plain, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(plain), `"refusals":1`, `"refusals":1,"made_up":18446744073709551615`) // of the slice, and of a step
	text = strings.Replace(text, `"job":7`, `"job":7,"mode":{"name":"x"}`, 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(list func() ([]Record, error)) Record {
		t.Helper()
		records, err := list()
		if err != nil || len(records) != 1 {
			t.Fatal(records, err)
		}
		return records[0]
	}
	waiting := func() ([]Record, error) { records, _, err := List(spool); return records, err }
	backfill := func() ([]Record, error) { return ListBackfill(spool, noon.AddDate(1000, 0, 0), 1) }
	for _, step := range []struct {
		what string
		do   func() error
		path string
	}{
		{"noted for later", func() error { return PutBackfill(spool, read(waiting)) }, filepath.Join(spool.Backfill(), "7.0.json")},
		{"put back", func() error { return Return(spool, read(backfill)) }, path},
		{"reported", func() error { return Keep(spool, read(waiting)) }, filepath.Join(spool.History(), "7.0.json")},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		now, err := os.ReadFile(step.path)
		if err != nil || strings.Count(string(now), `"made_up":18446744073709551615`) != 2 || !strings.Contains(string(now), `"mode":{"name":"x"}`) ||
			strings.Contains(string(now), `"backfill"`) { // known, and taken out
			t.Errorf("%s: %v: %s", step.what, err, now)
		}
	}
	if figures := read(func() ([]Record, error) { return Find(spool, 7) }).LaterFigures(0); len(figures) != 1 || string(figures["made_up"]) != "18446744073709551615" {
		t.Errorf("of the slice: %s", figures)
	}
}
