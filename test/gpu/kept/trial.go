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
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
	"github.com/slurm-vgpu/slurm-vgpu/test/gpu/gauge"
)

type options struct {
	simulated              bool
	minutes, seconds, most float64
	kills, asked           int
	programs, build, files string
}

// trial is what the parts share.
type trial struct {
	options
	*cluster.Cluster
	ctx     context.Context
	gpus    []*gauge.GPU
	python  string // the one of the caller's, which has PyTorch: jobs have another PATH
	scratch string // folder of boards, in memory
	part    string // that is played
	serial  int    // of the last board
	jobs    []*job
	like    map[string]gauge.Board // of the tenant that measured such a kernel alone
	alone   map[string]float64     // kernels or steps a second of a load alone
}

const node = "n1"

// configuration is added to config.yaml.
const configuration = "latency_partitions: [vgpu]\n"

// settling is how long tenants run before they are measured: vgpud looks twice a second, and its rule takes some looks.
const settling = 5 * time.Second

func begin(ctx context.Context, home cluster.Home, o options) (*trial, error) {
	c := cluster.Options{Build: o.build, Source: filepath.Dir(o.build), Unaccounted: true, GPU: "real", ExtraPath: os.Getenv("PATH"), ExtraConfig: configuration,
		SlicesPerGPU: 20, Progress: func(text string) { fmt.Fprintln(os.Stderr, "kept.sh:", text) }}
	if o.simulated {
		c.GPU = "sim"
	}
	up, err := cluster.Start(ctx, home, c)
	if err != nil {
		return nil, err
	}
	t := &trial{options: o, Cluster: up, ctx: ctx, like: map[string]gauge.Board{}, alone: map[string]float64{}}
	if t.python, err = exec.LookPath("python3"); err != nil {
		return nil, fmt.Errorf("find python3: %w", err)
	}
	if err := t.findGPUs(); err != nil {
		return nil, err
	}
	if t.scratch, err = os.MkdirTemp("/dev/shm", "vgpu-kept-"); err != nil {
		return nil, fmt.Errorf("make a folder for the boards: %w", err)
	}
	return t, os.Chmod(t.scratch, 0o755)
}

func (t *trial) findGPUs() error {
	library := nvml.New()
	if t.simulated {
		library = nvml.New(nvml.WithLibraryPath(t.Home.Path("sim", "libnvidia-ml.so.1")))
	}
	if ret := library.Init(); ret != nvml.SUCCESS {
		return fmt.Errorf("start NVML: %v", ret)
	}
	for i := range t.GPUs() {
		g, err := gauge.OpenGPU(library, i)
		if err != nil {
			return err
		}
		t.gpus = append(t.gpus, g)
	}
	return nil
}

// end keeps the logs where they were asked for.
func (t *trial) end() {
	t.cancelAll()
	os.RemoveAll(t.scratch)
	if t.files == "" {
		return
	}
	for _, name := range []string{"vgpu.log", "slurmctld.log", "slurmd-n1.log"} {
		text, err := os.ReadFile(t.Home.Path("log", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(t.files, name), text, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "kept.sh: keep a log:", err)
		}
	}
}

func (t *trial) run() rundir.Dir { return rundir.Dir(t.Home.Path("run", node)) }

// gpu is the first job's, as Slurm and slurm-vgpu place it; before there is one, the first.
func (t *trial) gpu() *gauge.GPU {
	slices, err := t.Slices(node)
	if err == nil && len(t.jobs) > 0 {
		for _, s := range slices {
			for _, g := range t.gpus {
				if s.Job == t.jobs[0].id && string(s.Device) == g.UUID {
					return g
				}
			}
		}
	}
	return t.gpus[0]
}

// usedMiB is of all GPUs.
func (t *trial) usedMiB() (total uint64) {
	for _, g := range t.gpus {
		total += g.UsedMiB()
	}
	return total
}

// until waits for what must come.
func (t *trial) until(what string, most time.Duration, is func() bool) {
	if !t.comes(most, is) {
		panic(fmt.Errorf("%s: not within %v", what, most))
	}
}

func (t *trial) comes(most time.Duration, is func() bool) bool {
	for end := time.Now().Add(most); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) || t.ctx.Err() != nil {
			return false
		}
	}
	return true
}

// pause waits, but not after the end of all.
func (t *trial) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
		panic(errors.New("ended from outside"))
	}
}

func (t *trial) asRoot(line string) string {
	result := t.Cluster.Run(t.ctx, t.Root(), line)
	if result.Code != 0 {
		panic(errors.New(result.String()))
	}
	return strings.TrimSpace(result.Stdout)
}

// logged are the lines that vgpud has written since the log had so many bytes.
func (t *trial) logged(from int64) (lines []string) {
	text, _ := os.ReadFile(t.Home.Path("log", "vgpu.log"))
	for line := range strings.Lines(string(text[min(from, int64(len(text))):])) {
		if strings.Contains(line, " vgpud: ") && !strings.Contains(line, "[INFO]") {
			_, said, _ := strings.Cut(strings.TrimSpace(line), " ")
			lines = append(lines, said)
		}
	}
	return lines
}

func (t *trial) logSize() int64 {
	info, err := os.Stat(t.Home.Path("log", "vgpu.log"))
	if err != nil {
		return 0
	}
	return info.Size()
}
