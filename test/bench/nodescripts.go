// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

const gresOfJob = "vgpu:1,gpumem:1000,gpucores:1"

// config writes a config.yaml for a run directory of the bench's own, apart from the cluster's.
func (b *bench) config(name, scontrol string, slicesPerGPU int) (path string, err error) {
	dir := b.cluster.Home.Path("bench", name)
	if err := os.MkdirAll(filepath.Join(dir, "spool"), 0o755); err != nil {
		return "", err
	}
	source := b.cluster.ConfigPath()
	text, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	var kept []string
	for line := range strings.Lines(string(text)) {
		key, _, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "run_dir":
			line = fmt.Sprintf("run_dir: %s/run\n", dir)
		case "spool_dir":
			line = fmt.Sprintf("spool_dir: %s/spool\n", dir)
		case "slices_per_gpu":
			line = fmt.Sprintf("slices_per_gpu: %d\n", slicesPerGPU)
		case "scontrol":
			if scontrol != "" {
				line = fmt.Sprintf("  scontrol: %s\n", scontrol)
			}
		case "report":
			line = "report: {enabled: false}\n"
		}
		kept = append(kept, line)
	}
	path = filepath.Join(dir, "config.yaml")
	slurmConf, err := os.ReadFile(b.cluster.Home.Path("etc", "slurm.conf"))
	if err != nil {
		return "", err
	}
	// The prolog compares the plugin's line with its own run_dir.
	plugstack := fmt.Sprintf("required %s run_dir=%s/run\n", b.tool("spank_vgpu.so"), dir)
	for name, text := range map[string]string{path: strings.Join(kept, ""), slurmConfBeside(path): string(slurmConf), filepath.Join(dir, "plugstack.conf"): plugstack} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return path, program(b.nodeEnv(0, path), b.tool("vgpu-gres"), "inventory", "--write", "--config", path)
}

func slurmConfBeside(config string) string { return filepath.Join(filepath.Dir(config), "slurm.conf") }

func (b *bench) tool(name string) string { return filepath.Join(b.build, name) }

// nodeEnv is what slurmd gives a prolog.
func (b *bench) nodeEnv(job int, config string) []string {
	user := b.cluster.Users[0]
	return []string{
		"SLURM_CONF=" + slurmConfBeside(config), "SLURMD_NODENAME=" + b.cluster.Nodes[0],
		"SLURM_JOB_ID=" + strconv.Itoa(job), fmt.Sprint("SLURM_JOB_UID=", user.UID), fmt.Sprint("SLURM_JOB_GID=", user.GID),
		"SLURM_JOB_RESTART_COUNT=0",
	}
}

// job submits a job that stays, and waits until it runs.
func (b *bench) job(ctx context.Context, gres string) (int, error) {
	line := "sbatch --parsable --gres=" + gres + " --wrap 'sleep 600'"
	if gres == "" {
		line = "sbatch --parsable --wrap 'sleep 600'"
	}
	result := b.cluster.Run(ctx, b.cluster.Users[0], line)
	id, err := strconv.Atoi(strings.TrimSpace(result.Stdout))
	if err != nil {
		return 0, errors.New(result.String())
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		result = b.cluster.Run(ctx, b.cluster.Users[0], fmt.Sprintf("squeue -h -j %d -o %%T", id))
		if strings.TrimSpace(result.Stdout) == "RUNNING" {
			return id, nil
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("job %d does not run: %s", id, result)
		}
	}
}

// prologAndEpilog measures both for a running job of the real controller, in a run directory of
// their own, against /bin/true and against asking the controller and nothing else.
func (b *bench) prologAndEpilog(ctx context.Context) error {
	sliced, err := b.job(ctx, gresOfJob)
	if err != nil {
		return err
	}
	plain, err := b.job(ctx, "")
	if err != nil {
		return err
	}
	config, err := b.config("single", "", 10)
	if err != nil {
		return err
	}
	prolog := []string{b.tool("vgpu-prolog"), "--config", config}
	epilog := []string{b.tool("vgpu-epilog"), "--config", config}
	env, plainEnv := b.nodeEnv(sliced, config), b.nodeEnv(plain, config)
	scontrol, err := exec.LookPath("scontrol")
	if err != nil {
		return err
	}
	run := func(env []string, argv ...string) func(int) error {
		return func(int) error { return program(env, argv...) }
	}
	times, err := inTurns(b.rounds,
		contender{name: "/bin/true", run: run(env, "/bin/true")},
		contender{name: "scontrol", run: run(env, scontrol, "-d", "-o", "show", "job", strconv.Itoa(sliced))},
		contender{name: "prolog", run: run(env, prolog...)},
		contender{name: "epilog", run: run(env, epilog...)},
		contender{name: "prolog without vgpu", run: run(plainEnv, prolog...)},
		contender{name: "epilog without vgpu", run: run(plainEnv, epilog...)},
	)
	if err != nil {
		return err
	}
	nothing, answer := times[0], times[1]
	for i, name := range []string{"vgpu-prolog", "vgpu-epilog", "vgpu-prolog, job without vgpu", "vgpu-epilog, job without vgpu"} {
		ours, baseline, against := times[2+i], answer, "scontrol show job"
		if strings.Contains(name, "epilog") {
			baseline, against = nothing, "/bin/true"
		}
		cost := ours - baseline
		b.add(row{name, ms(ours), fmt.Sprintf("%s %s", against, ms(baseline)), "+" + ms(cost), "≤ 15 ms", cost <= 15*time.Millisecond})
	}
	b.add(row{what: "asking the controller", ours: ms(answer), baseline: "/bin/true " + ms(nothing), cost: "+" + ms(answer-nothing)})
	return nil
}

// concurrent places 200 jobs at once. The controller's answer is canned: 200 programs that ask it
// would measure the controller.
func (b *bench) concurrent(ctx context.Context) error {
	const jobs = 200
	canned, printed := b.cluster.Home.Path("bench", "scontrol"), b.cluster.Home.Path("bench", "answer")
	job, err := b.job(ctx, gresOfJob)
	if err != nil {
		return err
	}
	said := b.cluster.Run(ctx, b.cluster.Root(), fmt.Sprintf("scontrol -d -o show job %d > %s", job, printed))
	if said.Code != 0 {
		return errors.New(said.String())
	}
	answer := fmt.Sprintf("#!/bin/sh\nread -r first rest < %s\necho \"JobId=$5 $rest\"\n", printed)
	if err := os.WriteFile(canned, []byte(answer), 0o755); err != nil {
		return err
	}
	all := func(name string, each func(job int) error) (time.Duration, error) {
		errs := make([]error, jobs)
		var group sync.WaitGroup
		start := time.Now()
		for i := range jobs {
			group.Go(func() { errs[i] = each(1_000_000 + i) })
		}
		group.Wait()
		took := time.Since(start)
		if err := errors.Join(errs...); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		return took, nil
	}
	const runs = 5
	var ours, baseline []time.Duration
	for i := range runs {
		config, err := b.config(fmt.Sprint("many", i), canned, jobs)
		if err != nil {
			return err
		}
		took, err := all("vgpu-prolog", func(job int) error {
			return program(b.nodeEnv(job, config), b.tool("vgpu-prolog"), "--config", config)
		})
		if err != nil {
			return err
		}
		if err := b.allPlaced(config, jobs); err != nil {
			return err
		}
		ours = append(ours, took)
		took, err = all("canned answer", func(job int) error {
			return program(b.nodeEnv(job, config), canned, "-d", "-o", "show", "job", strconv.Itoa(job))
		})
		if err != nil {
			return err
		}
		baseline = append(baseline, took)
	}
	o, n := median(ours), median(baseline)
	b.add(row{fmt.Sprintf("%d placements at once", jobs), ms(o), "the canned answers alone " + ms(n), "+" + ms(o-n), "≤ 2 s", o <= 2*time.Second})
	return nil
}

// allPlaced holds the state file against what was asked for: a fast prolog that loses slices is none.
func (b *bench) allPlaced(config string, want int) error {
	dir := filepath.Join(filepath.Dir(config), "run")
	held, err := cluster.SlicesIn(dir)
	if err == nil && len(held) != want {
		err = fmt.Errorf("%s has %d slices, want %d", dir, len(held), want)
	}
	return err
}
