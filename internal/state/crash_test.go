// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/test/privatemounts"
)

const (
	childRun   = "VGPU_TEST_CHILD_RUN_DIR"
	childJobs  = "VGPU_TEST_CHILD_JOBS"
	childCrash = "VGPU_TEST_CHILD_CRASH"
)

// TestMain lets this binary be a writer of its own, which dies where it is told to.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childRun); dir != "" {
		if at := os.Getenv(childCrash); at != "" {
			crashpoint.Set(func(name string) {
				if name == at {
					syscall.Kill(os.Getpid(), syscall.SIGKILL)
				}
			})
		}
		if err := child(rundir.Dir(dir), os.Getenv(childJobs)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	privatemounts.Enter()
	os.Exit(m.Run())
}

// child grants a slice to each job in turn.
func child(dir rundir.Dir, ids string) error {
	store := Store{Dir: dir, BootID: testBoot, Log: hclog.NewNullLogger()}
	for text := range strings.FieldsSeq(ids) {
		id, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return err
		}
		tx, err := store.Begin(context.Background())
		if err != nil {
			return err
		}
		tx.Put(uint32(id), []Slice{sliceOf(uint32(id))})
		if err := tx.Commit(); err != nil {
			return err
		}
		tx.End()
	}
	return nil
}

func startChild(t *testing.T, dir rundir.Dir, ids, crash string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childRun+"="+string(dir), childJobs+"="+ids, childCrash+"="+crash)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestWriterKilledAnywhereLeavesTheStateBeforeOrAfter(t *testing.T) {
	for _, tc := range []struct {
		crash string
		after bool // job 2 is there
	}{
		{"state/before-write", false},
		{"state/temp-created", false},
		{"state/half-written", false},
		{"state/before-rename", false},
		{"state/renamed", true},
	} {
		t.Run(strings.ReplaceAll(tc.crash, "/", " "), func(t *testing.T) {
			store := newStore(t)
			put(t, store, 1)
			err := startChild(t, store.Dir, "2", tc.crash).Wait()
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the writer did not die at %s: %v", tc.crash, err)
			}
			want := []uint32{1}
			if tc.after {
				want = append(want, 2)
			}
			got, err := store.Read()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, jobs(got.Slices)); diff != "" {
				t.Error(diff)
			}
			put(t, store, 3) // the lock is free, and what lay about is gone
			if left, _ := filepath.Glob(string(store.Dir) + "/.state.json*"); len(left) != 0 {
				t.Errorf("temporary files stay: %v", left)
			}
		})
	}
}

func TestManyProcessesLoseNothing(t *testing.T) {
	store := newStore(t)
	const processes, each = 32, 4
	var children []*exec.Cmd
	for p := range processes {
		var ids []string
		for n := range each {
			ids = append(ids, strconv.Itoa(1+p*each+n))
		}
		children = append(children, startChild(t, store.Dir, strings.Join(ids, " "), ""))
	}
	for _, c := range children {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
	if got, err := store.Read(); err != nil || len(got.Slices) != processes*each {
		t.Errorf("%d slices, want %d: %v", len(got.Slices), processes*each, err)
	}
}

// BenchmarkPut is the cost of one grant on a node that holds this many slices already.
func BenchmarkPut(b *testing.B) {
	for _, held := range []uint32{10, 80, 1000} {
		b.Run(fmt.Sprintf("held=%d", held), func(b *testing.B) {
			store := newStore(b)
			var ids []uint32
			for job := range held {
				ids = append(ids, job+1)
			}
			put(b, store, ids...)
			for b.Loop() {
				put(b, store, held+1)
			}
		})
	}
}
