// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
	"github.com/slurm-vgpu/slurm-vgpu/internal/report"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// setLockWait is how long a change queues behind prologs and epilogs.
const setLockWait = 30 * time.Second

var errNoSlice = errors.New("it holds no slice on this node")

// change is what `vgpuctl set` is asked for.
type change struct {
	job        uint32
	size       request.Request // memory, share and priority; what is not asked for stays
	devices    []string        // NVML indices and UUIDs; none: all slices of the job
	overcommit bool
}

// changed is what `vgpuctl set --json` prints.
type changed struct {
	Job    uint32         `json:"job"`
	Slices []changedSlice `json:"slices"`
	Steps  []string       `json:"steps"` // running steps for which it is in force
}

type changedSlice struct {
	Device       device.UUID      `json:"device"`
	Index        device.NVMLIndex `json:"nvml_index"`
	MemMiB       int64            `json:"mem_mib"`
	SMPercent    int              `json:"sm_percent"` // 0: no cap
	WasMemMiB    int64            `json:"was_mem_mib"`
	WasSMPercent int              `json:"was_sm_percent"`
	Priority     device.Priority  `json:"priority"`
	WasPriority  device.Priority  `json:"was_priority"`

	usedMiB int64 // 0: not known
	capped  bool  // its policy is cap
}

const setText = `Change the memory, the share of GPU time and the priority that a running job has on this node. It is in force at
once, for processes that run as well: memory that is in use beyond a smaller limit stays in use, but
nothing more is given out.

A step that asked for less than its job keeps that, as far as the job still has it; the other steps
have what the job has. A slice grows only into what its GPU has free; with --force its memory may be
what others were granted too, up to what the GPU has. A share of time is never promised twice. Where
Slurm picks the GPUs by shards, more than those that it has counted for the job needs --force as well.

Priority latency needs a share. latency_per_gpu holds here as well; latency_qos and latency_partitions
do not: the administrator who calls this decides.

Slurm's allocation (GRES) and accounting do not change: Slurm still counts the job with what
it asked for, and may send another job where there is no room any more. The usage record and
AdminComment name the new limits.

Exit codes: 0 changed, 1 not possible, 2 wrong usage, 78 config.yaml is wrong.`

func setCommand(o *options) *cobra.Command {
	var cores, mem, priority string
	var ask change
	var asJSON bool
	command := &cobra.Command{
		Use:     "set JOB [--mem SIZE] [--cores PERCENT] [--priority HOW] [--device GPU] [--force] [--json]",
		Short:   "Change the memory, the share and the priority of a running job (root only)",
		Long:    setText,
		Example: "  vgpuctl set 123 --cores 50\n  vgpuctl set 123 --mem 8G --cores 0\n  vgpuctl set 123 --mem 25% --device 0,GPU-1b2c3d4e",
		Args: func(command *cobra.Command, args []string) error {
			if len(args) != 1 || !jobIDs().MatchString(args[0]) {
				return exitError{exitUsage, fmt.Errorf("%s takes one job id: 123, 123_4 or 123+1", command.CommandPath())}
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			if err := ask.parse(command, mem, cores, priority); err != nil {
				return exitError{exitUsage, err}
			}
			cfg, err := o.held()
			if err != nil {
				return err
			}
			if os.Geteuid() != 0 {
				return fmt.Errorf("set job %s: only root may", args[0])
			}
			done, err := setJob(command.Context(), cfg, args[0], ask)
			if err == nil {
				err = raiseAgain(command.Context(), o, done.Job)
			}
			if err != nil {
				return fmt.Errorf("set job %s: %w", args[0], err)
			}
			if asJSON {
				return printJSON(command.OutOrStdout(), done)
			}
			printChanged(command.OutOrStdout(), done)
			return nil
		},
	}
	command.Flags().StringVar(&mem, "mem", "", "`size` of each slice's memory: MiB, or 8G, or a share of the GPU as 25%")
	command.Flags().StringVar(&cores, "cores", "", "`percent` of each GPU's time: 1 to 100, 0 is no cap")
	command.Flags().StringVar(&priority, "priority", "", "`how` its work goes beside others': latency, normal, batch")
	command.Flags().StringSliceVar(&ask.devices, "device", nil, "only the slices on these `GPU`s: NVML indices or UUIDs")
	command.Flags().BoolVar(&ask.overcommit, "force", false, "grant memory that is granted to others as well")
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// parse takes the options that were typed.
func (ask *change) parse(command *cobra.Command, mem, cores, priority string) error {
	for _, option := range []struct{ typed, name, value string }{{"--mem", "vgpu-mem", mem}, {"--cores", "vgpu-cores", cores}, {"--priority", "vgpu-priority", priority}} {
		if !command.Flags().Changed(strings.TrimPrefix(option.typed, "--")) {
			continue
		}
		if err := request.ParseAs(option.typed, option.name, option.value, &ask.size); err != nil {
			return err
		}
	}
	if ask.size.IsZero() {
		return errors.New("nothing to change: give --mem, --cores or --priority")
	}
	return nil
}

func setJob(ctx context.Context, cfg config.Config, id string, ask change) (changed, error) {
	var err error
	if ask.job, err = (report.Slurm{Commands: cfg.Slurm}).Number(ctx, id); err != nil {
		return changed{}, err
	}
	log, closer := logOf(cfg, "set")
	defer closer.Close()
	boot, err := inventory.BootID()
	if err != nil {
		return changed{}, err
	}
	inv, err := inventory.Read(cfg.Run().Inventory())
	if err != nil {
		return changed{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, setLockWait)
	defer cancel()
	tx, err := state.Of(cfg, boot, log).Begin(ctx)
	if err != nil {
		return changed{}, err
	}
	defer tx.End()
	return ask.carryOut(cfg, tx, inv, log)
}

// carryOut changes the state, then the grant, then the steps. The lock stays with the caller. Whoever
// is killed in between leaves the grant behind the state: the same command again makes good.
func (ask change) carryOut(cfg config.Config, tx *state.Tx, inv device.Inventory, log hclog.Logger) (changed, error) {
	g, err := grant.Read(cfg.Run().Grant(ask.job))
	if errors.Is(err, fs.ErrNotExist) {
		err = errNoSlice
	}
	if err != nil {
		return changed{}, err
	}
	if g.Whole {
		return changed{}, errors.New("the job holds whole GPUs, which have no limit")
	}
	run := state.Run{Job: g.Job, Restart: g.Restart}
	done, will, err := ask.plan(cfg, tx.Slices(), run, inv, g.Shards)
	if err != nil {
		return changed{}, err
	}
	tx.Change(func(s *state.Slice) {
		if size, ok := will[s.Device]; ok && s.Run() == run {
			s.Slice = size
		}
	})
	if err := tx.Commit(); err != nil {
		return changed{}, err
	}
	crashpoint.At("set/committed")
	for i, s := range g.Slices {
		size, ok := will[s.Device]
		if ok && (size.MemMiB != s.MemMiB || size.SMPercent != s.SMPercent) {
			was := device.Limit{UntilUnixS: time.Now().Unix(), MemMiB: s.MemMiB, SMPercent: s.SMPercent}
			if g.Earlier == nil {
				g.Earlier = make(map[device.UUID][]device.Limit)
			}
			g.Earlier[s.Device] = device.AddLimit(g.Earlier[s.Device], was)
		}
		if ok {
			g.Slices[i] = size
		}
	}
	if err := grant.Write(cfg.Run().Grant(ask.job), g); err != nil {
		return changed{}, err
	}
	crashpoint.At("set/granted")
	done.look(cfg.Run(), g)
	if done.Steps, err = g.ChangeSteps(cfg.Run()); err != nil {
		return changed{}, err
	}
	for _, s := range done.Slices {
		log.Info("slice changed", "job", ask.job, "device", s.Device, "mem_mib", s.MemMiB, "sm_percent", s.SMPercent,
			"was_mem_mib", s.WasMemMiB, "was_sm_percent", s.WasSMPercent, "priority", s.Priority, "was_priority", s.WasPriority, "steps", len(done.Steps))
	}
	return done, nil
}

// look adds what the slices hold, for who makes them smaller.
func (c *changed) look(run rundir.Dir, g grant.Grant) {
	used, err := ledger.ReadDevices(run.Ledger(g.Job), g.Job, g.Bounds())
	for i := range c.Slices {
		s := &c.Slices[i]
		s.capped = g.Policy != request.PolicyElastic
		for j, of := range g.Slices {
			if err == nil && of.Device == s.Device && j < len(used) {
				s.usedMiB = usage.MiB(used[j].UsedBytes)
			}
		}
	}
}

// plan is what each slice of the job that is asked for becomes, if all of them can.
func (ask change) plan(cfg config.Config, held []state.Slice, run state.Run, inv device.Inventory, shards int64) (changed, map[device.UUID]device.Slice, error) {
	done, will := changed{Job: ask.job, Slices: []changedSlice{}}, make(map[device.UUID]device.Slice)
	rules := place.Rules{SlicesPerGPU: cfg.SlicesPerGPU, MemOvercommit: cfg.MemOvercommit, LatencyPerGPU: cfg.LatencyPerGPU}
	holds := false
	for i, s := range held {
		if s.Run() != run {
			continue
		}
		holds = true
		if on, err := ask.isOn(s.Slice); err != nil || !on {
			if err != nil {
				return done, nil, exitError{exitUsage, err}
			}
			continue
		}
		var others []device.Slice
		for j, other := range held {
			if j != i {
				others = append(others, other.Slice)
			}
		}
		size := ask.sizeOf(s.Slice, inv)
		if refusal := place.Resize(inv, others, s.Slice, size, rules, ask.overcommit); refusal != nil {
			return done, nil, errors.New(refusal.Reason)
		}
		if err := beyondShards(cfg, inv, shards, s.Slice, size); err != nil && !ask.overcommit {
			return done, nil, err
		}
		if err := firstHere(size); err != nil {
			return done, nil, err
		}
		will[s.Device] = size
		done.Slices = append(done.Slices, changedSlice{Device: s.Device, Index: s.Index, MemMiB: size.MemMiB, SMPercent: size.SMPercent,
			WasMemMiB: s.MemMiB, WasSMPercent: s.SMPercent, Priority: size.Priority, WasPriority: s.Priority})
	}
	switch {
	case !holds:
		return done, nil, errNoSlice
	case len(will) == 0:
		return done, nil, fmt.Errorf("it holds no slice on --device %s", strings.Join(ask.devices, ","))
	}
	return done, will, nil
}

// beyondShards says why a slice cannot become larger than what Slurm has counted of its GPU: Slurm goes on sending others there, by
// shards that are free, and no prolog can place them. shards: the job's; 0: Slurm picks no GPU here.
func beyondShards(cfg config.Config, inv device.Inventory, shards int64, was, will device.Slice) error {
	gpu, known := inv.ByUUID(was.Device)
	if shards == 0 || !known {
		return nil
	}
	all := gpu.GrantableMiB(cfg.MemOvercommit)
	need := func(s device.Slice) int64 { return max(s.MemMiB, all*int64(s.SMPercent)/100) } // as vgpu_shards.lua counts them
	if need(will) <= max(shards, need(was)) {
		return nil
	}
	return fmt.Errorf("GPU %d: Slurm has counted shard:%d of its %d for the job, and sends others to what is left: the most is %d MiB or %d %% without --force",
		gpu.Index, shards, all, shards, ((shards+1)*100-1)/all)
}

// firstHere says why a slice can be of priority latency no more, or not yet.
func firstHere(will device.Slice) error {
	if will.Priority == device.PriorityLatency && will.SMPercent == 0 {
		return fmt.Errorf("GPU %d: a slice of priority latency needs a share, at which its credit comes: give --cores", will.Index)
	}
	return nil
}

func (ask change) sizeOf(s device.Slice, inv device.Inventory) device.Slice {
	size := s
	if gpu, ok := inv.ByUUID(s.Device); ok && !ask.size.Mem.IsZero() {
		size.MemMiB = ask.size.Mem.OfGPU(gpu.MemMiB)
	}
	if size.MostMiB = max(s.MostMiB, s.MemMiB); size.MostMiB <= size.MemMiB {
		size.MostMiB = 0
	}
	if ask.size.SMPercent > 0 || ask.size.Uncapped {
		size.SMPercent = ask.size.SMPercent
	}
	if ask.size.Priority != request.PriorityDefault {
		size.Priority = device.PriorityOf(string(ask.size.Priority))
	}
	return size
}

// isOn says whether a slice is on one of the GPUs that were named.
func (ask change) isOn(s device.Slice) (bool, error) {
	on := len(ask.devices) == 0
	for _, name := range ask.devices {
		if index, err := strconv.Atoi(name); err == nil {
			on = on || device.NVMLIndex(index) == s.Index
			continue
		}
		var only request.Request
		if err := request.ParseAs("--device", "vgpu-uuid", name, &only); err != nil || len(only.UUID.Not) > 0 {
			return false, fmt.Errorf("--device=%s: want NVML indices as 0 or UUIDs as GPU-1b2c3d4e (8 characters after GPU- at least)", name)
		}
		on = on || only.UUID.AdmitsUUID(string(s.Device))
	}
	return on, nil
}

func printChanged(out io.Writer, done changed) {
	for _, s := range done.Slices {
		was := func(now, before any) string {
			if now == before {
				return " (as before)"
			}
			return fmt.Sprintf(" (was %v)", before)
		}
		priority := ""
		if s.Priority != s.WasPriority {
			priority = fmt.Sprintf(", priority %s%s", s.Priority, was(s.Priority, s.WasPriority))
		}
		fmt.Fprintf(out, "job %d on GPU %d: %d MiB%s, %s%s%s\n", done.Job, s.Index, s.MemMiB, was(s.MemMiB, s.WasMemMiB),
			cores(s.SMPercent), was(cores(s.SMPercent), cores(s.WasSMPercent)), priority)
		if s.usedMiB > s.MemMiB {
			fmt.Fprintf(out, "  %d MiB are in use: they stay in use, and nothing more is given out until less than %d MiB are\n", s.usedMiB, s.MemMiB)
		}
		if s.capped && s.Priority == device.PriorityLatency {
			fmt.Fprintln(out, "  priority latency has no effect on a slice with policy cap: "+needsElastic)
		}
	}
	steps := slices.Clone(done.Steps)
	slices.Sort(steps)
	if len(steps) == 0 {
		steps = []string{"none"}
	}
	fmt.Fprintf(out, "in force for running steps: %s\n", strings.Join(steps, ", "))
}
