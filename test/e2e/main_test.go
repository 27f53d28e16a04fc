// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

// Package e2e tries slurm-vgpu on a real Slurm: what a user asks for, what a job sees, and every
// fault of which the documentation says what happens. It needs root and what `make build` built.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// The cluster that all tests share; each leaves it as it found it.
var (
	c        *cluster.Cluster
	one, two cluster.User
	root     cluster.User
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(cluster.Enclose(func(ctx context.Context, home cluster.Home) int {
		source, err := filepath.Abs("../..")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		c, err = cluster.Start(ctx, home, cluster.Options{
			Build: filepath.Join(source, "build"), Source: source, GPU: "sim", SlicesPerGPU: slicesPerGPU,
			NodeCount: 2, DefaultNodes: 1, // n2 is for the tests that want two
			Whole:    true,
			Progress: func(text string) { fmt.Fprintln(os.Stderr, "e2e:", text) },
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			return 1
		}
		one, two, root = c.Users[0], c.Users[1], c.Root()
		if c.Isolation != "strict" {
			seen += " | grep -vx 0"
		}
		return m.Run()
	}))
}

// nodeLogs are what the node's side says, which goes away with the folder.
var nodeLogs = []string{"vgpu.log", "slurmd-n1.log", "slurmctld.log"}

// keepLogs shows, if the test fails, what the logs got since now.
func keepLogs(t *testing.T) {
	t.Helper()
	before := map[string]int64{}
	for _, name := range nodeLogs {
		if info, err := os.Stat(c.Home.Path("log", name)); err == nil {
			before[name] = info.Size()
		}
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, name := range nodeLogs {
			data, err := os.ReadFile(c.Home.Path("log", name))
			if err != nil {
				continue
			}
			data = data[min(int(before[name]), len(data)):]
			const most = 10000
			t.Logf("the end of %s:\n%s", name, data[max(0, len(data)-most):])
		}
	})
}
