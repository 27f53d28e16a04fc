// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// placement measures one more slice on a node of eight GPUs that holds 10, 100 or 1000: the choice
// alone, and with the locked, synced replacement of the state file.
func (b *bench) placement(ctx context.Context) error {
	var choose, commit []time.Duration
	counts := []int{10, 100, 1000}
	for _, count := range counts {
		inv, taken := fullNode(count)
		rules := place.Rules{SlicesPerGPU: 200, MemOvercommit: 1}
		want := place.Want{Slices: 1, Mem: request.Mem{MiB: 100}, SMPercent: 0}
		var refusal *place.Refusal
		const calls = 1000
		times, err := inTurns(b.rounds, contender{name: "place", run: func(int) error {
			for range calls {
				if _, refusal = place.Place(inv, taken, want, rules); refusal != nil {
					return errors.New(refusal.Reason)
				}
			}
			return nil
		}})
		if err != nil {
			return err
		}
		choose = append(choose, times[0]/calls)

		store := state.Store{Dir: rundir.Dir(b.cluster.Home.Path("bench", fmt.Sprint("state", count))), BootID: "bench", Log: hclog.NewNullLogger()}
		if err := fill(ctx, store, taken); err != nil {
			return err
		}
		times, err = inTurns(b.rounds, contender{name: "commit", run: func(round int) error {
			tx, err := store.Begin(ctx)
			if err != nil {
				return err
			}
			defer tx.End()
			slices, refusal := place.Place(inv, taken, want, rules)
			if refusal != nil {
				return errors.New(refusal.Reason)
			}
			tx.Put(999_999, []state.Slice{{Job: 999_999, Restart: round, Slice: slices[0]}})
			return tx.Commit()
		}})
		if err != nil {
			return err
		}
		commit = append(commit, times[0])
	}
	for i, count := range counts {
		b.add(row{what: fmt.Sprintf("choosing a GPU, %d slices held", count), ours: us(choose[i]),
			baseline: fmt.Sprintf("%d held: %s", counts[0], us(choose[0])), cost: ratio(choose[i], choose[0])})
	}
	for i, count := range counts {
		r := row{what: fmt.Sprintf("choosing and committing, %d slices held", count), ours: ms(commit[i]),
			baseline: fmt.Sprintf("%d held: %s", counts[0], ms(commit[0])), cost: ratio(commit[i], commit[0])}
		if i > 0 {
			r.target, r.met = "flat (≤ 2 ×)", commit[i] <= 2*commit[0]
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
		tx.Put(job, []state.Slice{{Job: job, UID: 1000, Since: time.Now(), Slice: slice}})
	}
	return tx.Commit()
}
