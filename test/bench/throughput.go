// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const throughputOnly = "throughput"

// A turn is so many jobs of each of two users; each kind has so many turns.
const (
	jobsOfTurn      = 100
	throughputTurns = 3
	leastRatio      = 0.90
)

// kind is what jobs are run with, and what they ask for.
type kind struct {
	name, options string
	conf          []byte // slurm.conf
	rates         []float64
	took          []map[string]time.Duration // processor time of one job, by who took it
}

// throughput measures how many jobs a second the cluster carries from sbatch to the end of the epilog: with /bin/true as prolog and
// epilog and neither plugin nor Lua, and with slurm-vgpu for jobs without and with a slice, in turns.
func (b *bench) throughput(ctx context.Context) error {
	path := b.cluster.Home.Path("etc", "slurm.conf")
	ours, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	bare, err := b.withoutUs(string(ours))
	if err != nil {
		return err
	}
	kinds := []*kind{{name: "/bin/true", conf: bare}, {name: "jobs without a slice", conf: ours},
		{name: "jobs with a slice", conf: ours, options: "--gres=vgpu:1 --vgpu-mem=1000 --vgpu-cores=1"}}
	for range throughputTurns {
		for _, k := range kinds {
			if err := b.turn(ctx, path, k); err != nil {
				return errors.Join(fmt.Errorf("%s: %w", k.name, err), os.WriteFile(path, ours, 0o644))
			}
		}
	}
	b.rowsOfKinds(kinds)
	return b.restartSlurm(ctx, path, ours)
}

// withoutUs is this slurm.conf with /bin/true in our place. The GRES stay: Slurm would not start without them.
func (b *bench) withoutUs(conf string) ([]byte, error) {
	nothing := b.cluster.Home.Path("etc", "no-plugstack.conf")
	if err := os.WriteFile(nothing, nil, 0o644); err != nil {
		return nil, err
	}
	var kept []string
	for line := range strings.Lines(conf) {
		switch key, _, _ := strings.Cut(line, "="); key {
		case "JobSubmitPlugins", "CliFilterPlugins":
			continue
		case "PlugStackConfig":
			line = "PlugStackConfig=" + nothing + "\n"
		case "Prolog", "Epilog":
			line = key + "=/bin/true\n"
		}
		kept = append(kept, line)
	}
	return []byte(strings.Join(kept, "")), nil
}

// restartSlurm has the controller and all nodes read a slurm.conf from the start.
func (b *bench) restartSlurm(ctx context.Context, path string, conf []byte) error {
	for _, node := range b.cluster.Nodes {
		if err := b.cluster.StopDaemon(node, syscall.SIGTERM); err != nil {
			return err
		}
	}
	if err := b.restartController(ctx, path, conf); err != nil {
		return err
	}
	for _, node := range b.cluster.Nodes {
		if err := b.cluster.StartDaemon(node); err != nil {
			return err
		}
	}
	return await(ctx, "the nodes", func() error {
		said := b.cluster.Run(ctx, b.cluster.Root(), "sinfo -h -N -p vgpu -o %T")
		for state := range strings.FieldsSeq(said.Stdout) {
			if state != "idle" && state != "mixed" {
				return errors.New(said.String())
			}
		}
		return nil
	})
}

// turn runs the jobs of one turn.
func (b *bench) turn(ctx context.Context, path string, k *kind) error {
	if err := b.restartSlurm(ctx, path, k.conf); err != nil {
		return err
	}
	before, err := b.cluster.CPUTime()
	if err != nil {
		return err
	}
	begin := time.Now()
	name := fmt.Sprint("turn", begin.UnixNano())
	line := fmt.Sprintf("seq %d | xargs -P 2 -I{} sbatch -Q -J %s -o /dev/null %s --wrap true", jobsOfTurn, name, k.options)
	errs := make([]error, len(b.cluster.Users))
	var group sync.WaitGroup
	for i, user := range b.cluster.Users {
		group.Go(func() {
			if result := b.cluster.Run(ctx, user, line); result.Code != 0 {
				errs[i] = errors.New(result.String())
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := await(ctx, "the jobs of a turn to end", func() error {
		if said := b.cluster.Run(ctx, b.cluster.Root(), "squeue -h -n "+name+" -o '%i %T %r'"); said.Code != 0 || said.Stdout != "" {
			return errors.New(said.String())
		}
		return nil
	}); err != nil {
		return err
	}
	jobs := jobsOfTurn * len(b.cluster.Users)
	k.rates = append(k.rates, float64(jobs)/time.Since(begin).Seconds())
	if err := errors.Join(b.reportersEnd(ctx), b.allCompleted(ctx, name, jobs)); err != nil {
		return err
	}
	after, err := b.cluster.CPUTime()
	if err != nil {
		return err
	}
	for who := range after {
		after[who] = (after[who] - before[who]) / time.Duration(jobs)
	}
	k.took = append(k.took, after)
	fmt.Fprintf(os.Stderr, "bench: %s: %.1f jobs a second, %s\n", k.name, k.rates[len(k.rates)-1], eachTook(after))
	return nil
}

// reportersEnd waits until the use of all jobs is in the database: that is work of these jobs as well.
func (b *bench) reportersEnd(ctx context.Context) error {
	return await(ctx, "the reporters", func() error {
		records, err := filepath.Glob(b.cluster.Home.Path("vgpu-spool", "*", "usage", "*.json"))
		if err == nil && len(records) > 0 {
			err = fmt.Errorf("%d records wait", len(records))
		}
		return err
	})
}

// allCompleted holds the database against what was submitted: jobs that fail are quick.
func (b *bench) allCompleted(ctx context.Context, name string, jobs int) error {
	return await(ctx, "all jobs of a turn in the database", func() error {
		if n := b.count(ctx, "sacct -a -n -X --name="+name+" -o State", "COMPLETED"); n != jobs {
			return fmt.Errorf("%d of %d are completed there", n, jobs)
		}
		return nil
	})
}

func eachTook(took map[string]time.Duration) string {
	var text []string
	for _, who := range slices.Sorted(maps.Keys(took)) {
		text = append(text, fmt.Sprintf("%s %s", who, ms(took[who])))
	}
	return strings.Join(text, ", ")
}

func (b *bench) rowsOfKinds(kinds []*kind) {
	bare := kinds[0]
	for _, k := range kinds[1:] {
		var ratios, ours, baseline []float64
		for i, rate := range k.rates {
			ratios = append(ratios, rate/bare.rates[i])
			ours, baseline = append(ours, rate), append(baseline, bare.rates[i])
		}
		ratio := middle(ratios)
		b.add(row{k.name + ", a second", fmt.Sprintf("%.1f", middle(ours)), fmt.Sprintf("%s %.1f", bare.name, middle(baseline)),
			fmt.Sprintf("%.0f %%", 100*ratio), fmt.Sprintf("≥ %.0f %%", 100*leastRatio), ratio >= leastRatio})
	}
	whole := func(took map[string]time.Duration) (sum time.Duration) {
		for _, t := range took {
			sum += t
		}
		return sum
	}
	for _, k := range kinds[1:] {
		var parts []string
		for who := range k.took[0] {
			of := func(took map[string]time.Duration) time.Duration { return took[who] }
			if more := b.medianOf(k, of) - b.medianOf(bare, of); more >= 100*time.Microsecond || more <= -100*time.Microsecond {
				parts = append(parts, fmt.Sprintf("%s %+.1f", who, float64(more)/1e6))
			}
		}
		slices.Sort(parts)
		o, n := b.medianOf(k, whole), b.medianOf(bare, whole)
		b.add(row{what: "processor time of " + k.name, ours: ms(o), baseline: bare.name + " " + ms(n),
			cost: fmt.Sprintf("%+.1f ms: %s", float64(o-n)/1e6, strings.Join(parts, ", "))})
	}
}

func (b *bench) medianOf(k *kind, part func(map[string]time.Duration) time.Duration) time.Duration {
	var times []time.Duration
	for _, took := range k.took {
		times = append(times, part(took))
	}
	return median(times)
}

func middle(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
