// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/release"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

const (
	childDir   = "VGPU_TEST_CHILD_DIR"
	childCrash = "VGPU_TEST_CHILD_CRASH"
)

// TestMain lets this binary be an epilog that ends job 2.
func TestMain(m *testing.M) {
	dir := os.Getenv(childDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	crashpoint.Set(func(name string) {
		if name == os.Getenv(childCrash) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	})
	if err := endJob(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func endJob(dir string) error {
	cfg := config.Default()
	cfg.RunDir, cfg.SpoolDir = dir+"/run", dir+"/spool"
	log := hclog.NewNullLogger()
	tx, err := state.Of(cfg, "b", log).Begin(context.Background())
	if err != nil {
		return err
	}
	defer tx.End()
	_, err = release.Runs(cfg, tx, []uint32{2}, func(run state.Run) bool { return run.Job == 2 }, log)
	return err
}

// Sweeps put back what a job holds while that job's epilog frees it, and dies anywhere. The controller says all the time that the
// job runs. What an epilog has freed stays free.
func TestNothingComesBackThatAnEpilogHasFreed(t *testing.T) {
	n := newNode(t)
	n.holds(9, 0, longAgo)
	n.told.restarts[2], n.told.restarts[9] = 0, 0
	dir := filepath.Dir(n.Config.Slurm.SlurmdSpoolDir)
	for _, crash := range []string{"", "release/recorded", "release/grant-removed", "release/pages-removed", "release/folder-removed", "state/before-write",
		"state/temp-created", "release/committed"} {
		n.folder(2, 0, "")
		restored := n.sweep().Restored
		epilog := exec.Command(os.Args[0])
		epilog.Env = append(os.Environ(), childDir+"="+dir, childCrash+"="+crash)
		epilog.Stderr = os.Stderr
		n.check(epilog.Start())
		ended := make(chan error, 1)
		go func() { ended <- epilog.Wait() }()
		var died error
		for running := true; running; {
			select {
			case died = <-ended:
				running = false
			default:
				restored += n.sweep().Restored
			}
		}
		if restored == 0 || (died != nil) != (crash != "") {
			t.Errorf("%s: %d slices were put back, and the epilog: %v", crash, restored, died)
		}
		if died != nil {
			n.check(endJob(dir)) // the next one finds what is left
		}
		n.sweep()
		if diff := cmp.Diff([]uint32{9}, n.heldBy()); diff != "" {
			t.Errorf("%s: held (-want +got):\n%s", crash, diff)
		}
		n.left()
	}
}
