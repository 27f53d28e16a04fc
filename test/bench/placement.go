// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// heldCounts are how many slices the node holds already.
var heldCounts = []int{10, shown, 1000}

// oneMore is what is placed: one slice on a node of eight GPUs.
var (
	oneMore      = place.Want{Slices: 1, Mem: request.Mem{MiB: 100}, SMPercent: 0}
	oneMoreRules = place.Rules{SlicesPerGPU: 200, MemOvercommit: 1}
)

// placement measures one more slice on a node that holds 10, 80 or 1000: the choice alone, and with the locked, synced
// replacement of the state file, on a disk and in memory, where /run is on a node that systemd has started.
func (b *bench) placement(ctx context.Context) error {
	var choose []time.Duration
	for _, count := range heldCounts {
		inv, taken := fullNode(count)
		const calls = 1000
		times, err := inTurns(b.rounds, contender{name: "place", run: func(int) error {
			for range calls {
				if _, refusal := place.Place(inv, taken, oneMore, oneMoreRules); refusal != nil {
					return errors.New(refusal.Reason)
				}
			}
			return nil
		}})
		if err != nil {
			return err
		}
		choose = append(choose, times[0]/calls)
	}
	for i, count := range heldCounts {
		b.add(row{what: fmt.Sprintf("choosing a GPU, %d slices held", count), ours: us(choose[i]),
			baseline: fmt.Sprintf("%d held: %s", heldCounts[0], us(choose[0])), cost: ratio(choose[i], choose[0])})
	}
	memory, err := os.MkdirTemp("/dev/shm", "vgpu-bench-")
	if err != nil {
		return err
	}
	return errors.Join(b.commits(ctx, "on disk", b.cluster.Home.Path("bench")), b.commits(ctx, "in memory", memory), os.RemoveAll(memory))
}

// commits takes the nodes in turns, so that other work on the machine is the same for all of them.
func (b *bench) commits(ctx context.Context, where, folder string) error {
	var contenders []contender
	for _, count := range heldCounts {
		inv, taken := fullNode(count)
		store := state.Store{Dir: rundir.Dir(filepath.Join(folder, fmt.Sprint("state", count))), BootID: "bench", Log: hclog.NewNullLogger()}
		if err := fill(ctx, store, taken); err != nil {
			return err
		}
		contenders = append(contenders, contender{name: "commit", run: func(round int) error {
			tx, err := store.Begin(ctx)
			if err != nil {
				return err
			}
			defer tx.End()
			slices, refusal := place.Place(inv, taken, oneMore, oneMoreRules)
			if refusal != nil {
				return errors.New(refusal.Reason)
			}
			tx.Put(999_999, []state.Slice{{Job: 999_999, Restart: round, Slice: slices[0]}})
			return tx.Commit()
		}})
	}
	commit, err := inTurns(b.rounds, contenders...)
	if err != nil {
		return err
	}
	for i, count := range heldCounts {
		r := row{what: fmt.Sprintf("choosing and committing %s, %d slices held", where, count), ours: ms(commit[i]),
			baseline: fmt.Sprintf("%d held: %s", heldCounts[0], ms(commit[0])), cost: ratio(commit[i], commit[0])}
		if count == shown {
			r.target, r.met = "≤ 1 ms more", commit[i] <= commit[0]+time.Millisecond
		}
		b.add(r)
	}
	return nil
}

func us(d time.Duration) string { return fmt.Sprintf("%.2f µs", float64(d)/1e3) }

func ratio(a, b time.Duration) string { return fmt.Sprintf("%.2f ×", float64(a)/float64(b)) }

func fullNode(slices int) (device.Inventory, []device.Slice) {
	const gpus = 8
	var inv device.Inventory
	for i := range gpus {
		inv.GPUs = append(inv.GPUs, device.GPU{UUID: device.UUID(fmt.Sprintf("GPU-%08d-0000-0000-0000-000000000000", i)),
			Index: device.NVMLIndex(i), Minor: device.Minor(i), Type: "h200", MemMiB: 143771})
	}
	var taken []device.Slice
	for i := range slices {
		gpu := inv.GPUs[i%gpus]
		taken = append(taken, device.Slice{Device: gpu.UUID, Index: gpu.Index, Minor: gpu.Minor, MemMiB: 100})
	}
	return inv, taken
}

func fill(ctx context.Context, store state.Store, taken []device.Slice) error {
	tx, err := store.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.End()
	for i, slice := range taken {
		job := uint32(i + 1)
		now := time.Now().Truncate(time.Millisecond)
		tx.Put(job, []state.Slice{{Job: job, UID: 1000, Since: state.MillisOf(now), Ends: now.Add(time.Hour).Unix(), Slice: slice}})
	}
	return tx.Commit()
}
