// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Command outside measures what one root process can do with a GPU's own scheduler, from outside the programs that use it: who was on by the
// log of context switches, time slices, channels disabled. It is started by ../time.sh; each part is a section of
// docs/verified/time-from-outside.md, and each line that it prints a figure.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/slurm-vgpu/slurm-vgpu/test/gpu/gauge"
)

// part is what can be asked for.
type part struct {
	name    string
	section int // of the decision; 0: of none
	says    string
	play    func(*trial)
}

var parts = []part{
	{"smoke", 1, "does it work here: slices of 3 and 7 ms, off and on, one alone", (*trial).smoke},
	{"log", 1, "the log of context switches beside 2, 4 and 10 tenants", (*trial).logs},
	{"flush", 1, "what reading it costs a bystander, by how often", (*trial).flush},
	{"meter", 2, "counted against GPM and against the log, alone and beside others", (*trial).meter},
	{"nvml", 2, "counted against NVML's samples of utilisation", (*trial).nvmlSamples},
	{"torch", 2, "GPM against PyTorch's profiler (wants PyTorch and nvidia-ml-py)", (*trial).torch},
	{"calls", 3, "what calls cost a bystander, by kind and number", (*trial).calls},
	{"two", 3, "the same beside a second GPU (wants two GPUs)", (*trial).two},
	{"many", 3, "one call for the channels of eight processes", (*trial).many},
	{"own", 3, "disabled by root's own client, with the handles alone", (*trial).own},
	{"cross", 3, "disabled by another user", (*trial).cross},
	{"weights", 4, "shares by time slices, in rounds of 5 to 50 ms", (*trial).weights},
	{"jobs", 4, "a job of sixteen, and of ten contexts in one process, beside one", (*trial).jobs},
	{"sleeper", 5, "one that waits for each step, by the others' slices and in turns", (*trial).sleeper},
	{"follow", 5, "the rule of test/timeslices", (*trial).follow},
	{"latency", 6, "requests beside those that fill the GPU", (*trial).latency},
	{"caps", 7, "one alone held to a share, by the clock and by the meter", (*trial).caps},
	{"beside", 7, "one held to a share by the log, beside another", (*trial).beside},
	{"breaks", 8, "memory that faults, many contexts, copies: off, on, in turns, killed while off", (*trial).breaks},
	{"stuck", 8, "off and on 1,200 times", (*trial).stuck},
	{"ends", 8, "SIGTERM, the end of its time and the end of who disabled it, while off", (*trial).ends},
	{"checkpoint", 8, "the driver's checkpoint, on and off", (*trial).checkpoint},
	{"tools", 8, "cuda-gdb, ncu and compute-sanitizer beside 100 calls a second", (*trial).tools},
	{"nccl", 8, "all-reduce with one rank off (wants two GPUs, PyTorch)", (*trial).nccl},
	{"undo", 9, "what a process can undo, and set itself", (*trial).undo},
	{"handles", 10, "which copied descriptor keeps a dead process's memory", (*trial).handles},
}

// trial is what the parts share.
type trial struct {
	gpu, other *gauge.GPU // other is nil where there is one
	programs   string     // folder of what is started; other users may enter it
	scratch    string     // folder of boards and handles, in memory
	part       string     // that is played
	serial     int        // of the last board
	tenants    []*tenant
}

func (t *trial) program(name string) string { return filepath.Join(t.programs, name) }

func usage() {
	fmt.Fprintln(flag.CommandLine.Output(), "usage: time.sh [--gpu N] PART…\nN: NVML index of the GPU that is measured, else 0\nparts, by section of docs/verified/time-from-outside.md:")
	for _, p := range parts {
		fmt.Fprintf(flag.CommandLine.Output(), "  %2d  %-11s %s\n", p.section, p.name, p.says)
	}
}

// chosen are the parts of these names.
func chosen(names []string) (found []part, err error) {
	for _, name := range names {
		before := len(found)
		for _, p := range parts {
			if p.name == name {
				found = append(found, p)
			}
		}
		if len(found) == before {
			return nil, fmt.Errorf("there is no part %q; --help lists them", name)
		}
	}
	return found, nil
}

func main() {
	flag.Usage = usage
	gpuIndex := flag.Int("gpu", 0, "NVML `index` of the GPU that is measured")
	programs := flag.String("programs", ".", "`folder` of the tenants' programs")
	attack := flag.String("attack", "", "for part cross: act as another user on the `file` of handles")
	cheat := flag.String("cheat", "", "start the program that follows and get around what others set for it: slice, enable or idle, each millisecond")
	flag.Parse()
	if *cheat != "" {
		os.Exit(cheats(*programs, *cheat, flag.Args()))
	}
	wanted, err := chosen(flag.Args())
	switch {
	case err != nil:
	case len(wanted) == 0 && *attack == "":
		usage()
		os.Exit(2)
	default:
		err = play(*gpuIndex, *programs, *attack, wanted)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "time.sh:", err)
		os.Exit(1)
	}
}

func play(gpuIndex int, programs, victimFile string, wanted []part) error {
	library := nvml.New()
	if ret := library.Init(); ret != nvml.SUCCESS {
		return fmt.Errorf("start NVML: %v", ret)
	}
	t := &trial{programs: programs}
	var err error
	if t.gpu, err = gauge.OpenGPU(library, gpuIndex); err != nil {
		return err
	}
	for i := 0; t.other == nil; i++ {
		if i == gpuIndex {
			continue
		}
		if t.other, err = gauge.OpenGPU(library, i); err != nil {
			break
		}
	}
	// Boards are registered with CUDA, so they are files in memory.
	if t.scratch, err = os.MkdirTemp("/dev/shm", "vgpu-time-"); err != nil {
		return fmt.Errorf("make a folder for the boards: %w", err)
	}
	defer os.RemoveAll(t.scratch)
	if err := os.Chmod(t.scratch, 0o755); err != nil {
		return fmt.Errorf("open the folder of the boards to others: %w", err)
	}
	if victimFile != "" {
		return t.guarded(part{name: "cross", play: func(t *trial) { t.attack(victimFile) }})
	}
	var stopped []string
	for _, p := range wanted {
		began, faults := time.Now(), gauge.Xids()
		if err := t.guarded(p); err != nil {
			t.row("stopped", err.Error())
			stopped = append(stopped, p.name)
		}
		t.row("took", fmt.Sprintf("%.0f s", time.Since(began).Seconds()), fmt.Sprintf("%d more Xids", gauge.Xids()-faults))
	}
	if stopped != nil {
		return fmt.Errorf("stopped: %s", strings.Join(stopped, ", "))
	}
	return nil
}

// guarded plays a part. What cannot go on there panics with an error, and the part's tenants do not stay.
func (t *trial) guarded(p part) (err error) {
	t.part = p.name
	defer func() {
		for len(t.tenants) > 0 {
			t.tenants[0].kill()
			t.forget(t.tenants[0])
		}
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	p.play(t)
	return nil
}
