// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// gres is the GPUs of a node, real or simulated, as Slurm is to count them.
type gres struct {
	simulated   bool
	memMiB      []int // by GPU
	deviceDir   string
	nvmlLibrary string

	counts map[string]string // for NodeName= of slurm.conf
	conf   string            // gres.conf
}

// plainGres counts what a Slurm without slurm-vgpu may be asked for.
var plainGres = gres{counts: map[string]string{"": "vgpu:20"}, conf: "AutoDetect=off\nName=vgpu Count=20 Flags=CountOnly\n"}

// simulatedMiB is a node of two H200s.
var simulatedMiB = []int{143771, 143771}

// Simulated says that the node's GPUs are those of test/simgpu.
func (c *Cluster) Simulated() bool { return c.gres.simulated }

// GPUs is the memory of each GPU of a node in MiB.
func (c *Cluster) GPUs() []int { return c.gres.memMiB }

func (c *Cluster) findGPUs(ctx context.Context) error {
	switch c.GPU {
	case "", "auto":
		if _, err := os.Stat("/proc/driver/nvidia/version"); err != nil {
			c.gres = gres{simulated: true, memMiB: simulatedMiB}
			return nil
		}
	case "sim":
		c.gres = gres{simulated: true, memMiB: simulatedMiB}
		return nil
	case "real":
	default:
		return fmt.Errorf("GPU %q: accepted are auto, sim and real", c.GPU)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits").Output()
	if err != nil {
		return fmt.Errorf("ask nvidia-smi for the GPUs: %w", err)
	}
	g := gres{deviceDir: "/dev"}
	for field := range strings.FieldsSeq(string(out)) {
		mib, err := strconv.Atoi(field)
		if err != nil {
			return fmt.Errorf("nvidia-smi gives the memory of a GPU as %q", field)
		}
		g.memMiB = append(g.memMiB, mib)
	}
	if len(g.memMiB) == 0 {
		return errors.New("nvidia-smi finds no GPU")
	}
	c.gres = g
	return nil
}
