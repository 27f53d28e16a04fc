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

// points is how far a second of GPU time may be from the share.
const points = 2.0

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

// awaitShare waits for a second of those after the first n in which the program had its share, and
// fails at once when one had more. A second with less is waited out: on a machine that is busy with
// other things, nobody launches what the share would cover.
func (b busyProgram) awaitShare(after int, want float64) {
	b.t.Helper()
	until(b.t, fmt.Sprintf("a share of %.0f in %s", want, filepath.Base(b.file)), 60*time.Second, func() error {
		shares := b.seconds()
		if len(shares) <= after {
			return fmt.Errorf("it told %v", shares)
		}
		found := fmt.Errorf("it had %v", shares)
		for _, share := range shares[after:] {
			if share > want+points {
				b.t.Fatalf("it had %v from second %d on, more than %.0f", shares, after, want)
			}
			if share >= want-points {
				found = nil
			}
		}
		return found
	})
}

// timeOf is what status tells of a job's slice in the next second.
func timeOf(t *testing.T, job string) statusSlice {
	t.Helper()
	s := statusOf(t, root, job, "--over 1s")
	if s.GPUSeconds == nil || s.WaitedSeconds == nil || s.SharePercent == nil || s.Over == nil {
		t.Fatalf("it tells no time of job %s", job)
	}
	return s
}

func near(got, want, relative, absolute float64) bool {
	return math.Abs(got-want) <= want*relative+absolute
}

// A job gets its share of the GPU's time, in each second; status tells it while it runs and
// AdminComment afterwards; and a change is in force within a second.
func TestShareOfTheGPU(t *testing.T) {
	begin(t)
	program, line := busyIn(t, one, "busy")
	job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=25", line)
	program.awaitShare(0, 25)
	until(t, "the share in vgpuctl status", 60*time.Second, func() error {
		s := timeOf(t, job)
		if *s.SharePercent > 25+points {
			t.Fatalf("it is %.1f", *s.SharePercent)
		}
		if *s.SharePercent < 25-points {
			return fmt.Errorf("it is %.1f", *s.SharePercent)
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
	// Those that had begun before, and one second more.
	program.awaitShare(len(program.seconds())+2, 75)
	program.end()
	finish(t, one, job)
	ran, busy := program.sum()
	d := awaitUsage(t, job, 60*time.Second).VGPU.Nodes["n1"]
	if len(d) != 1 || d[0].GPUSeconds == nil || d[0].WaitedSeconds == nil {
		t.Fatalf("AdminComment: %s", account(t, job, "AdminComment"))
	}
	// The simulated GPU is threads of this machine, which runs other tests as well: what is seen of the end of a kernel is late by that. What holds
	// on a GPU is in docs/benchmarks.md.
	if gpu := *d[0].GPUSeconds; !near(gpu, busy, 0.03, 0.15) {
		t.Errorf("gpu_s is %.2f; %.2f s of kernels ran", gpu, busy)
	}
	// One thread that has nothing else to do: whenever the GPU is idle, it waits for its share.
	if waited := *d[0].WaitedSeconds; waited > ran+0.1 || waited < (ran-busy)*0.8 {
		t.Errorf("waited_s is %.2f, of %.2f s in which the GPU was busy for %.2f", waited, ran, busy)
	}
}

func TestTwoJobsShareTheTimeOfAGPU(t *testing.T) {
	begin(t)
	small, smallLine := busyIn(t, one, "small")
	large, largeLine := busyIn(t, two, "large")
	a := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=30", smallLine)
	b := submit(t, two, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=70", largeLine)
	if x, y := slicesOf(t, a), slicesOf(t, b); x[0].Device != y[0].Device {
		t.Fatalf("%+v and %+v are not on one GPU", x, y)
	}
	until(t, "both to begin", 60*time.Second, func() error {
		if len(small.seconds()) == 0 || len(large.seconds()) == 0 {
			return fmt.Errorf("%v and %v", small.seconds(), large.seconds())
		}
		return nil
	})
	nowSmall, nowLarge := len(small.seconds())+1, len(large.seconds())+1
	small.awaitShare(nowSmall, 30)
	large.awaitShare(nowLarge, 70)
	small.end()
	large.end()
	finish(t, one, a)
	finish(t, two, b)
}

// A step that asks for less than its job gets that, and the job's other steps the rest.
func TestShareOfAStep(t *testing.T) {
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
		a, b := narrow.seconds(), wide.seconds()
		if len(b) < 3 {
			return fmt.Errorf("%v and %v", a, b)
		}
		x, y := a[len(a)-1], b[len(b)-1]
		if x > 20+points || x+y > 60+2*points {
			t.Fatalf("%v and %v", a, b)
		}
		if x+y < 60-2*points {
			return fmt.Errorf("%v and %v", a, b)
		}
		return nil
	})
	narrow.end()
	wide.end()
	finish(t, one, job)
}

// An elastic slice has what nobody uses, until whoever has a claim to it comes back.
func TestElasticShare(t *testing.T) {
	begin(t)
	elastic, elasticLine := busyIn(t, one, "elastic")
	capped, cappedLine := busyIn(t, two, "capped")
	a := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=25 --vgpu-policy=elastic", elasticLine)
	elastic.awaitShare(0, 100)
	b := submit(t, two, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=50", cappedLine)
	capped.awaitShare(1, 50)
	elastic.awaitShare(len(elastic.seconds())+2, 50)
	capped.end()
	finish(t, two, b)
	elastic.awaitShare(len(elastic.seconds())+2, 100)
	elastic.end()
	finish(t, one, a)
}
