// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// preload measures a program that never touches CUDA, 50 runs at a time, with and without the library.
func (b *bench) preload(context.Context) error {
	const runs = 50
	library := "LD_PRELOAD=" + filepath.Join(b.build, "libslurm-vgpu.so")
	many := func(env ...string) func(int) error {
		return func(int) error {
			for range runs {
				if err := program(env, "/bin/true"); err != nil {
					return err
				}
			}
			return nil
		}
	}
	times, err := inTurns(b.rounds, contender{name: "plain", run: many()}, contender{name: "preloaded", run: many(library)})
	if err != nil {
		return err
	}
	plain, ours := times[0]/runs, times[1]/runs
	b.add(row{"/bin/true under the preload", ms(ours), "without " + ms(plain), "+" + ms(ours-plain), "≤ +0.2 ms", ours-plain <= 200*time.Microsecond})
	return nil
}

// plugin measures what loading the plugin adds to sbatch, which loads every SPANK plugin before it
// prints its help, and to slurmstepd, whose hooks a host program plays.
func (b *bench) plugin(_ context.Context) error {
	home := b.cluster.Home
	text, err := os.ReadFile(home.Path("etc", "slurm.conf"))
	if err != nil {
		return err
	}
	var kept []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "PlugStackConfig") {
			line = "PlugStackConfig=/dev/null\n"
		}
		kept = append(kept, line)
	}
	// Beside the other one, because Slurm looks for the Lua scripts there.
	without := home.Path("etc", "slurm-without.conf")
	if err := os.WriteFile(without, []byte(strings.Join(kept, "")), 0o644); err != nil {
		return err
	}
	sbatch, err := exec.LookPath("sbatch")
	if err != nil {
		return err
	}
	help := func(conf string) func(int) error {
		return func(int) error { return program([]string{"SLURM_CONF=" + conf}, sbatch, "--help") }
	}
	times, err := inTurns(b.rounds,
		contender{name: "without", run: help(without)},
		contender{name: "with", run: help(home.Path("etc", "slurm.conf"))})
	if err != nil {
		return err
	}
	cost := times[1] - times[0]
	b.add(row{"plugin in sbatch", ms(times[1]), "sbatch without it " + ms(times[0]), "+" + ms(cost), "≤ 2 ms", cost <= 2*time.Millisecond})
	return nil
}

// columns tells the columns of a table that a C program printed.
var columns = regexp.MustCompile(` {2,}`)

// table runs a measuring program of the C parts and returns the rows that it prints below the head.
func table(ctx context.Context, env []string, argv ...string) ([][]string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = env
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w", argv, err)
	}
	var rows [][]string
	for line := range strings.Lines(string(out)) {
		rows = append(rows, columns.Split(strings.TrimSpace(line), -1))
	}
	if len(rows) < 2 {
		return nil, fmt.Errorf("%v printed no table: %q", argv, out)
	}
	return rows[1:], nil
}

// stepd is what the plugin costs slurmstepd, whose hooks a host program plays: median microseconds.
func (b *bench) stepd(ctx context.Context) error {
	rows, err := table(ctx, nil, filepath.Join(b.build, "test-spank", "testhost"), filepath.Join(b.build, "spank_vgpu.so"),
		filepath.Join(b.build, "libslurm-vgpu.so"), "bench")
	if err != nil {
		return err
	}
	medians := map[string]time.Duration{}
	for _, r := range rows {
		median, err := strconv.ParseFloat(r[1], 64)
		if err != nil {
			return fmt.Errorf("row %q: %w", r, err)
		}
		took := time.Duration(median * float64(time.Microsecond))
		medians[r[0]] = took
		b.add(row{"plugin alone: " + r[0], ms(took), "not loaded 0", "+" + ms(took), "≤ 2 ms", took <= 2*time.Millisecond})
	}
	return nil
}

// calls runs the interposer's own measurement, which compares each call with the simulated driver's.
func (b *bench) calls(ctx context.Context) error {
	env := []string{"VGPU_TEST_SIM=" + filepath.Join(b.build, "sim"), "LD_PRELOAD=" + filepath.Join(b.build, "libslurm-vgpu.so")}
	for _, measured := range []struct{ program, with string }{{"bench/memory", ", 5000 live blocks"}, {"bench/launch", ""}} {
		rows, err := table(ctx, env, filepath.Join(b.build, "test-interposer", measured.program))
		if err != nil {
			return err
		}
		for _, r := range rows {
			b.add(row{what: r[0] + measured.with, ours: r[2] + " ns", baseline: "direct " + r[1] + " ns", cost: "+" + r[3] + " ns"})
		}
	}
	return nil
}
