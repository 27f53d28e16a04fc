// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
)

const (
	sampledSlices = 80
	sampledPoints = 470 // nearly the most that a timeline has
)

// sampling measures a look at 80 slices with long histories.
func (b *bench) sampling(ctx context.Context) error {
	path, err := b.config("sample", "", sampledSlices)
	if err != nil {
		return err
	}
	if err := b.holdSlices(ctx, path); err != nil {
		return err
	}
	var cpu []time.Duration
	times, err := inTurns(b.rounds,
		contender{name: "/bin/true", run: func(int) error { return program(nil, "/bin/true") }},
		contender{name: "vgpuctl --version", run: func(int) error { return program(nil, b.tool("vgpuctl"), "--version") }},
		contender{name: "sample", run: func(int) error {
			took, err := b.lookOnce(path)
			cpu = append(cpu, took)
			return err
		}},
	)
	if err != nil {
		return err
	}
	cost := times[2] - times[0]
	b.add(row{fmt.Sprintf("vgpuctl sample, %d slices", sampledSlices), ms(times[2]),
		fmt.Sprintf("/bin/true %s, vgpuctl --version %s", ms(times[0]), ms(times[1])), "+" + ms(cost), "≤ 30 ms", cost <= 30*time.Millisecond})
	part := float64(median(cpu)) / float64(10*time.Second) / sampledSlices * 100
	b.add(row{"the same, of a core for each job, every 10 s", fmt.Sprintf("%.4f %%", part), "", "", "≤ 0.1 %", part <= 0.1})
	return nil
}

// lookOnce says what processor time a look took.
func (b *bench) lookOnce(path string) (time.Duration, error) {
	cmd := exec.Command(b.tool("vgpuctl"), "--config", path, "--node", b.cluster.Nodes[0], "sample")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("sample: %w: %s", err, out.String())
	}
	if !bytes.Contains(out.Bytes(), fmt.Appendf(nil, "looked at %d slices", sampledSlices)) {
		return 0, fmt.Errorf("sample: %s", out.String())
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// holdSlices leaves what prologs leave for as many jobs, and what samplers would in hours.
func (b *bench) holdSlices(ctx context.Context, path string) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	dir := cfg.Run()
	inv, err := inventory.Read(dir.Inventory())
	if err != nil {
		return err
	}
	tx, err := state.Store{Dir: dir, BootID: inv.BootID, Log: hclog.NewNullLogger()}.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.End()
	since := time.Now().Add(-sampledPoints * 10 * time.Second)
	history, err := longHistory(filepath.Join(filepath.Dir(path), "history"), since)
	if err != nil {
		return err
	}
	for i := range sampledSlices {
		job, gpu := uint32(1_000_000+i), inv.GPUs[i%len(inv.GPUs)]
		slice := device.Slice{Device: gpu.UUID, Index: gpu.Index, Minor: gpu.Minor, MemMiB: 1000, SMPercent: 1}
		user := b.cluster.Users[0]
		g := grant.Grant{Version: grant.Version, Job: job, BootID: inv.BootID, UID: uint32(user.UID), GID: uint32(user.GID), Node: b.cluster.Nodes[0],
			Since: since, Slices: []device.Slice{slice}, NodeGPUsMiB: []int64{gpu.MemMiB}}
		tx.Put(job, []state.Slice{{Job: job, UID: g.UID, Since: state.MillisOf(since), Slice: slice}})
		mine := bytes.Replace(history, []byte(`"job":1,`), fmt.Appendf(nil, `"job":%d,`, job), 1)
		err := errors.Join(os.MkdirAll(dir.Job(job), 0o755), os.MkdirAll(dir.Pages(job), 0o755), grant.Write(dir.Grant(job), g),
			ledger.Create(dir.Ledger(job), job, 1, g.UID, g.GID), os.WriteFile(dir.Timeline(job), mine, 0o640))
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}

// longHistory is the timeline of a job of one slice, as text.
func longHistory(path string, since time.Time) ([]byte, error) {
	run := timeline.Run{Job: 1, Slices: 1}
	for i := range int64(sampledPoints) {
		file, err := timeline.Open(path, run, 0)
		if err != nil {
			return nil, err
		}
		busy := 5000 * i
		look := timeline.Look{AtUnixS: since.Unix() + 10*i, Slices: []timeline.Sample{{UsedMiB: 1000, BusyMs: &busy}}}
		if err := file.Add(look); err != nil {
			return nil, err
		}
	}
	return os.ReadFile(path)
}
