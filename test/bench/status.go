// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/pages"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// shown is a node as large as one is: 8 GPUs of 10 slices.
const shown = 80

// looks measures what shows a node with all its slices, each of a job with a process on the GPU, against a start of the
// same program that shows nothing.
func (b *bench) looks(ctx context.Context) error {
	config, err := b.config("looks", "", shown)
	if err != nil {
		return err
	}
	dir := rundir.Dir(filepath.Join(filepath.Dir(config), "run"))
	defer b.clear(dir)
	if err := b.fullNode(ctx, dir); err != nil {
		return err
	}
	stop, err := b.holders(ctx, dir)
	defer stop()
	if err != nil {
		return err
	}
	env := b.nodeEnv(0, config)
	run := func(args ...string) func(int) error {
		argv := append([]string{b.tool("vgpuctl")}, args...)
		return func(int) error { return program(env, argv...) }
	}
	times, err := inTurns(b.rounds,
		contender{name: "nothing", run: run("--version")},
		contender{name: "status", run: run("status", "--config", config)},
		contender{name: "metrics", run: run("metrics", "--config", config)},
	)
	if err != nil {
		return err
	}
	for i, look := range []struct {
		name string
		most time.Duration
	}{{"vgpuctl status", 20 * time.Millisecond}, {"vgpuctl metrics", 30 * time.Millisecond}} {
		took := times[1+i]
		b.add(row{fmt.Sprintf("%s, %d slices", look.name, shown), ms(took), "vgpuctl --version " + ms(times[0]), ratio(took, times[0]),
			fmt.Sprintf("≤ %d ms", look.most.Milliseconds()), took <= look.most})
	}
	return nil
}

// fullNode has a job for each slice, with all that a prolog leaves.
func (b *bench) fullNode(ctx context.Context, dir rundir.Dir) error {
	inv, err := inventory.Read(dir.Inventory())
	if err != nil {
		return err
	}
	store := state.Store{Dir: dir, BootID: inv.BootID, Log: hclog.NewNullLogger()}
	tx, err := store.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.End()
	user := b.cluster.Users[0]
	for i := range shown {
		gpu := inv.GPUs[i%len(inv.GPUs)]
		slice := device.Slice{Device: gpu.UUID, Index: gpu.Index, Minor: gpu.Minor, MemMiB: 1000, SMPercent: 1}
		g := grant.Grant{Job: uint32(2_000_000 + i), BootID: inv.BootID, UID: uint32(user.UID), GID: uint32(user.GID), Node: b.cluster.Nodes[0], Since: time.Now().UTC(),
			Request: "mem=1000", Entitlement: request.Entitlement{Slices: 1, MemMiB: 1000, SMPercent: 1}, Slices: []device.Slice{slice},
			Isolation: grant.IsolationStrict, NodeGPUsMiB: []int64{gpu.MemMiB}, GPUTypes: []string{gpu.Type}}
		if err := os.MkdirAll(dir.Job(g.Job), 0o755); err != nil {
			return err
		}
		if _, err := pages.Make(dir.Pages(g.Job)); err != nil {
			return err
		}
		if err := ledger.Create(dir.Ledger(g.Job), g.Job, 1, g.UID, g.GID); err != nil {
			return err
		}
		if err := grant.Write(dir.Grant(g.Job), g); err != nil {
			return err
		}
		tx.Put(g.Job, []state.Slice{{Job: g.Job, UID: g.UID, Since: state.MillisOf(g.Since), Slice: slice}})
	}
	return tx.Commit()
}

// clear unmounts the pages.
func (b *bench) clear(dir rundir.Dir) {
	for i := range shown {
		_ = pages.Remove(dir.Pages(uint32(2_000_000 + i))) // the cluster's folder goes away with all in it
	}
}

// holders are a process for each job that has memory of the GPU, until stop.
func (b *bench) holders(ctx context.Context, dir rundir.Dir) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var started []*exec.Cmd
	stop = func() {
		cancel()
		for _, cmd := range started {
			_ = cmd.Wait() // it was killed
		}
	}
	for i := range shown {
		cmd := b.cluster.Command(ctx, b.cluster.Users[0], fmt.Sprintf("exec env VGPU_STEP_DIR=%s vgpu-fill --quiet --upto 1 --step 1 --hold-until never",
			dir.Step(uint32(2_000_000+i), "batch")))
		if err := cmd.Start(); err != nil {
			return stop, err
		}
		started = append(started, cmd)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		said := b.cluster.Run(ctx, b.cluster.Root(), "nvidia-smi --query-compute-apps=pid --format=csv,noheader")
		if n := len(strings.Fields(said.Stdout)); n == shown {
			return stop, nil
		} else if time.Now().After(deadline) {
			return stop, fmt.Errorf("%d processes hold memory, want %d: %s", n, shown, said)
		}
	}
}
