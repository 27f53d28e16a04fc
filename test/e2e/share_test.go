// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// points is how far the GPU time of some seconds may be from the share: the machine that simulates the GPU may be late. What vgpud holds on
// a GPU is in docs/benchmarks.md.
const (
	points = 4.0
	some   = 3
)

// busyProgram is a vgpu-busy that tells each second what part of the GPU's time its kernels took, by
// their known length, until it is told to end.
type busyProgram struct {
	t    *testing.T
	file string // what it prints
	user cluster.User
}

// busyIn is the command line for a program of this name.
func busyIn(t *testing.T, u cluster.User, name string) (b busyProgram, line string) {
	t.Helper()
	b = busyProgram{t, filepath.Join(u.Home, name), u}
	forget := func() { os.Remove(b.file); os.Remove(b.file + ".end") }
	forget()
	t.Cleanup(forget)
	return b, "vgpu-busy --each 1000 --until " + name + ".end > " + name
}

func (b busyProgram) end() {
	b.t.Helper()
	ok(b.t, b.user, "touch "+b.file+".end")
}

// seconds are the shares that it has told so far.
func (b busyProgram) seconds() (shares []float64) {
	data, _ := os.ReadFile(b.file)
	for line := range strings.Lines(string(data)) {
		var share float64
		if n, _ := fmt.Sscanf(line, "%f %%\n", &share); n == 1 && strings.HasSuffix(line, "\n") {
			shares = append(shares, share)
		}
	}
	return shares
}

var busySum = regexp.MustCompile(`busy for [\d.]+ % of ([\d.]+) s: (\d+) kernels of (\d+) us`)

// sum is how long it ran and how long its kernels took; it has ended.
func (b busyProgram) sum() (ran, busy float64) {
	b.t.Helper()
	data, _ := os.ReadFile(b.file)
	match := busySum.FindStringSubmatch(string(data))
	if match == nil {
		b.t.Fatalf("vgpu-busy said: %s", data)
	}
	var kernels, us float64
	fmt.Sscan(match[1], &ran)
	fmt.Sscan(match[2], &kernels)
	fmt.Sscan(match[3], &us)
	return ran, kernels * us / 1e6
}

// awaitShare waits until a program has had its share over some seconds of those after the first n.
func (b busyProgram) awaitShare(after int, want float64) {
	b.t.Helper()
	until(b.t, fmt.Sprintf("a share of %.0f in %s", want, filepath.Base(b.file)), 60*time.Second, func() error {
		if shares := b.seconds(); len(shares) < after+some || !near(b.lately(), want, 0, points) {
			return fmt.Errorf("it had %v", shares)
		}
		return nil
	})
}

// lately is what it had of the last seconds.
func (b busyProgram) lately() (mean float64) {
	shares := b.seconds()
	if len(shares) < some {
		return 0
	}
	for _, share := range shares[len(shares)-some:] {
		mean += share / some
	}
	return mean
}

func near(got, want, relative, absolute float64) bool {
	return math.Abs(got-want) <= want*relative+absolute
}

// A job gets its share of the GPU's time; status and the node's nvidia-smi tell it while it runs and AdminComment afterwards; and a change is in force
// in the program that runs.
func TestShareOfTheGPU(t *testing.T) {
	needVgpud(t)
	begin(t)
	program, line := busyIn(t, one, "busy")
	job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=25", line)
	program.awaitShare(0, 25)
	until(t, "the share in vgpuctl status", 60*time.Second, func() error {
		if s := statusOf(t, root, job, "--over 1s"); s.GPUSeconds == nil || s.SharePercent == nil || !near(*s.SharePercent, 25, 0, points) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	until(t, "the utilisation that the node's nvidia-smi tells", 60*time.Second, func() error {
		var percent float64
		out := ok(t, root, "nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits").Stdout
		for field := range strings.FieldsSeq(out) {
			var one float64
			fmt.Sscan(field, &one)
			percent += one
		}
		if !near(percent, 25, 0, points+1) {
			return fmt.Errorf("it is %s", out)
		}
		return nil
	})
	ok(t, root, "vgpuctl --config "+c.ConfigPath()+" --node n1 set "+job+" --cores 75")
	program.awaitShare(len(program.seconds())+1, 75)
	program.end()
	finish(t, one, job)
	_, busy := program.sum()
	d := awaitUsage(t, job, 60*time.Second).VGPU.Nodes["n1"]
	if len(d) != 1 || d[0].GPUSeconds == nil {
		t.Fatalf("AdminComment: %s", account(t, job, "AdminComment"))
	}
	if gpu := *d[0].GPUSeconds; !near(gpu, busy, 0.03, 0.15) {
		t.Errorf("gpu_s is %.2f; %.2f s of kernels ran", gpu, busy)
	}
}

// A step that asks for less than its job gets that alone, and never more: the library, which holds it, charges it for what others of the job have
// meanwhile. The job's other steps get the rest.
func TestShareOfAStep(t *testing.T) {
	needVgpud(t)
	begin(t)
	narrow, narrowLine := busyIn(t, one, "narrow")
	wide, wideLine := busyIn(t, one, "wide")
	job := submit(t, one, "-n2 --gres=vgpu:1 --vgpu-mem=4000 --vgpu-cores=60",
		"srun -n1 --overlap --vgpu-cores=20 sh -c '"+narrowLine+"' & until [ -e both ]; do sleep 0.1; done; "+wideLine+"; wait")
	both := filepath.Join(one.Home, "both")
	t.Cleanup(func() { os.Remove(both) })
	narrow.awaitShare(0, 20)
	ok(t, one, "touch both")
	until(t, "60 percent of both together", 60*time.Second, func() error {
		if x, y := narrow.lately(), wide.lately(); x == 0 || x > 20+points || !near(x+y, 60, 0, points) {
			return fmt.Errorf("%v and %v", narrow.seconds(), wide.seconds())
		}
		return nil
	})
	narrow.end()
	wide.end()
	finish(t, one, job)
}

// An elastic slice has what nobody uses, until whoever has a claim to it comes back.
func TestElasticShare(t *testing.T) {
	needVgpud(t)
	begin(t)
	const always = "--us 2000 --ahead 16"
	elastic := atWork(t, 25, always)
	comesTo(t, elastic, 97, 5)
	capped := cappedAtWork(t, 50, always)
	comesTo(t, capped, 50, 4)
	comesTo(t, elastic, 50, 5)
	ok(t, root, "scancel "+capped)
	comesTo(t, elastic, 97, 5)
}
