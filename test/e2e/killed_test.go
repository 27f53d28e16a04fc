// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
)

// wholeNode: in another pid namespace than the node's first, as a container of CI has, nothing follows from what the driver does not name.
var wholeNode = audit.Here("").WholeNode

// lookAt is status of a job of which all is known that can be.
func lookAt(t *testing.T, job string) (statusSlice, error) {
	t.Helper()
	s := statusOf(t, root, job, "")
	if !wholeNode && s.DriverMiB == nil && s.DifferenceMiB == nil {
		s.DriverMiB, s.DifferenceMiB = new(int), new(int)
	}
	if s.UsedMiB == nil || s.PeakMiB == nil || s.DriverMiB == nil || s.DifferenceMiB == nil {
		return s, fmt.Errorf("nothing is known of job %s: %+v", job, s)
	}
	return s, nil
}

// await waits for a file of a job.
func await(t *testing.T, path string) {
	t.Helper()
	until(t, path, 60*time.Second, func() error { _, err := os.Stat(path); return err })
}

// TestAKilledProcessHoldsNothing: the first look after a kill -9 counts who lives and nobody else, although no process of the job has come
// by since: also where pids mean nothing outside.
func TestAKilledProcessHoldsNothing(t *testing.T) {
	const both, left = 1300 + 2*518, 800 // with what contexts of the simulated driver take, and without
	for _, tc := range []struct {
		name, enter string
		driver      bool // the simulated one tells nobody of other pid namespaces
	}{
		{"on the node", "bash", true},
		{"where pids are of its own", "unshare --user --map-root-user --mount --pid --fork --mount-proc bash", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			begin(t)
			if !tc.driver {
				needStrict(t)
			}
			dir := openDir(t)
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			// Who lives is stopped, so that it cannot count again what the other one held.
			inner := "cd " + dir + "\nvgpu-fill --quiet --upto 500 --hold-until never & killed=$!\n" +
				"vgpu-fill --quiet --upto 800 --hold-until never & stays=$!\n" +
				"until [ -e kill ]; do sleep 0.1; done\nkill -STOP $stays\nkill -9 $killed\nwait $killed\ntouch dead\n" +
				"until [ -e killall ]; do sleep 0.1; done\nkill -9 $stays\nwait $stays\ntouch alldead\nuntil [ -e end ]; do sleep 0.1; done\n"
			if err := os.WriteFile(filepath.Join(dir, "inner"), []byte(inner), 0o755); err != nil {
				t.Fatal(err)
			}
			job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000", tc.enter+" "+dir+"/inner")
			held := slicesOf(t, job)[0]
			var before statusSlice
			until(t, "both processes' memory", 60*time.Second, func() (err error) {
				if before, err = lookAt(t, job); err == nil && (*before.UsedMiB < both || (tc.driver && *before.DifferenceMiB != 0)) {
					err = fmt.Errorf("%d MiB, %d by the driver", *before.UsedMiB, *before.DriverMiB)
				}
				return err
			})
			touch := func(name string) {
				if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			touch("kill")
			await(t, filepath.Join(dir, "dead"))
			if after, err := lookAt(t, job); err != nil {
				t.Error(err)
			} else if (tc.driver && *after.DifferenceMiB != 0) || *after.UsedMiB < left || *after.UsedMiB > *before.UsedMiB-500 || *after.PeakMiB != *before.PeakMiB {
				t.Errorf("beside one that lives: %d MiB used, %d by the driver, at most %d", *after.UsedMiB, *after.DriverMiB, *after.PeakMiB)
			}
			touch("killall")
			await(t, filepath.Join(dir, "alldead"))
			wantNothingHeld(t, job, held, *before.PeakMiB)
			touch("end")
			finish(t, one, job)
			if d := awaitUsage(t, job, 60*time.Second).VGPU.Nodes["n1"]; len(d) != 1 || d[0].PeakMiB != *before.PeakMiB {
				t.Errorf("the record: %+v, want a peak of %d", d, *before.PeakMiB)
			}
		})
	}
}

// wantNothingHeld asks in every way that tells what a slice holds.
func wantNothingHeld(t *testing.T, job string, held slice, peakMiB int) {
	t.Helper()
	if after, err := lookAt(t, job); err != nil {
		t.Error(err)
	} else if *after.UsedMiB != 0 || *after.DifferenceMiB != 0 || *after.PeakMiB != peakMiB {
		t.Errorf("with none left: %d MiB used, %d by the driver, at most %d", *after.UsedMiB, *after.DriverMiB, *after.PeakMiB)
	}
	driver := `0 +\+?0`
	if !wholeNode {
		driver = `- +-`
	}
	row := regexp.MustCompile(fmt.Sprintf(`(?m)^%s +%s +%d +3000 +no cap +0 +%s +%d `, job, one.Name, held.Index, driver, peakMiB))
	if text := ok(t, root, tool("n1", "status")).Stdout; !row.MatchString(text) {
		t.Errorf("status: %s", text)
	} else if !wholeNode && !strings.Contains(text, "is not known: the driver names no process in this pid namespace") {
		t.Errorf("status does not say why the driver's word is missing: %s", text)
	}
	labels := []string{"jobid=" + job, "gpu_uuid=" + held.Device}
	said := parse(t, ok(t, root, metricsOf("n1", "--steps")).Stdout)
	series := map[string]int{"slice_memory_used": 0, "slice_memory_driver": 0, "slice_memory_peak": peakMiB, "step_memory_used": 0}
	if !wholeNode {
		delete(series, "slice_memory_driver")
	}
	for name, want := range series {
		if got := said.value(t, "slurm_vgpu_"+name+"_bytes", labels...); got != float64(want<<20) {
			t.Errorf("%s is %v, want %d MiB", name, got, want)
		}
	}
	var report struct {
		Slices []statusSlice `json:"slices"`
	}
	text := ok(t, root, tool("n1", "explain --json "+job)).Stdout
	if err := json.Unmarshal([]byte(text), &report); err != nil || len(report.Slices) != 1 || report.Slices[0].UsedMiB == nil || *report.Slices[0].UsedMiB != 0 {
		t.Errorf("explain: %v: %s", err, text)
	}
}
