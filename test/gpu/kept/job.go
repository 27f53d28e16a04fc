// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/test/gpu/gauge"
)

// job is one of Slurm's, whose tenants use the GPU and count.
type job struct {
	id     uint32
	load   string
	share  float64 // percent
	boards []gauge.Board
	active int // of the boards; the others' tenants do not begin
	output string
}

// want is a job that is to be made.
type want struct {
	load      string  // of tenant.cu, or "torch=NAME"
	share     float64 // percent; 0: no cap
	options   string  // more for sbatch
	processes int     // 0: one
	active    int     // 0: all
	around    string  // a line of shell in which %s is the program
}

// slice are sbatch's options: what is not said is a twenty-fifth of the memory of a GPU that has others.
func (w want) slice() string {
	line := w.options
	unless := func(option, value string) {
		if !strings.Contains(w.options, option) {
			line += " " + option + value
		}
	}
	unless("--gres", "=vgpu:1")
	unless("--vgpu-place", "=pack")
	unless("--vgpu-mem", "=4%")
	if w.share > 0 {
		unless("--vgpu-cores", fmt.Sprintf("=%.0f --vgpu-policy=elastic", w.share))
	}
	return line
}

// elastic gives one tenant of a load for each share.
func elastic(load string, shares ...float64) (all []want) {
	for _, share := range shares {
		all = append(all, want{load: load, share: share})
	}
	return all
}

// command is the tenant's command line.
func (t *trial) command(load, board string) string {
	switch {
	case strings.HasPrefix(load, "torch="):
		return fmt.Sprintf("%s %s %s %s", t.python, filepath.Join(t.programs, "torch_tenant.py"), strings.TrimPrefix(load, "torch="), board)
	case t.simulated:
		return "vgpu-busy " + t.busyOptions(load, board)
	}
	return fmt.Sprintf("%s file=%s %s", filepath.Join(t.programs, "tenant"), board, load)
}

// busyOptions say the same to vgpu-busy, which is the tenant where the GPU is simulated.
func (t *trial) busyOptions(load, board string) string {
	line := "--for 1000000 --board " + board
	for word := range strings.FieldsSeq(load) {
		name, value, _ := strings.Cut(word, "=")
		number, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "ms":
			line += fmt.Sprintf(" --us %.0f", number*1000)
		case "host":
			line += fmt.Sprintf(" --rest %.0f", number*1000)
		case "depth":
			line += " --ahead " + value
		}
	}
	return line
}

// kernel is what decides how long a load's kernel is: tenants of the same need not measure it again.
func kernel(load string) string {
	for word := range strings.FieldsSeq(load) {
		if strings.HasPrefix(word, "ms=") || strings.HasPrefix(word, "torch=") {
			return word
		}
	}
	return "ms=2"
}

// newBoard is the user's to write.
func (t *trial) newBoard(like gauge.Board) (gauge.Board, string) {
	t.serial++
	name := filepath.Join(t.scratch, fmt.Sprintf("%d.board", t.serial))
	b := must(gauge.NewBoard(name, 0o666))
	if like != nil {
		b.LikeAnother(like)
	}
	return b, name
}

// measured has the load's kernel measured, by a tenant that is alone.
func (t *trial) measured(load string) gauge.Board {
	k := kernel(load)
	if t.like[k] == nil {
		if len(t.jobs) > 0 {
			panic(fmt.Errorf("%q would measure its kernel beside others", load))
		}
		j := t.submit(want{load: k}, nil)
		t.ready(j)
		t.like[k] = j.boards[0]
		if strings.HasPrefix(k, "torch=") {
			t.alone[k] = 1e3 / j.boards[0].KernelMS()
		}
		t.cancelAll()
	}
	return t.like[k]
}

// start gives jobs whose tenants wait to be let go.
func (t *trial) start(wants ...want) (all []*job) {
	for _, w := range wants {
		t.measured(w.load)
	}
	for _, w := range wants {
		all = append(all, t.submit(w, t.like[kernel(w.load)]))
	}
	t.ready(all...)
	return all
}

// submit takes turns between the users.
func (t *trial) submit(w want, like gauge.Board) *job {
	j := &job{load: w.load, share: w.share, active: w.active}
	processes := max(1, w.processes)
	if j.active == 0 {
		j.active = processes
	}
	script := "#!/bin/bash\nulimit -c 0\n"
	for range processes {
		board, name := t.newBoard(like)
		j.boards = append(j.boards, board)
		line := t.command(w.load, name)
		if w.around != "" {
			line = fmt.Sprintf(w.around, line)
		}
		script += line + " &\n"
	}
	t.submitScript(j, w.slice(), script+"wait\n")
	return j
}

func (t *trial) submitScript(j *job, options, script string) {
	t.serial++
	user := t.Users[len(t.jobs)%2]
	file := filepath.Join(t.scratch, fmt.Sprintf("%d.sh", t.serial))
	j.output = filepath.Join(user.Home, fmt.Sprintf("%d.out", t.serial))
	if err := os.WriteFile(file, []byte(script), 0o755); err != nil {
		panic(err)
	}
	result := t.Cluster.Run(t.ctx, user, fmt.Sprintf("sbatch --parsable -t 15 -o %s %s %s", j.output, options, file))
	id, err := strconv.ParseUint(strings.TrimSpace(result.Stdout), 10, 32)
	if err != nil {
		panic(fmt.Errorf("submit a job: %s", result))
	}
	j.id = uint32(id)
	t.jobs = append(t.jobs, j)
}

// says is what the job's programs wrote.
func (j *job) says() string {
	text, _ := os.ReadFile(j.output)
	return strings.Join(strings.Fields(string(text)), " ")
}

const getsReady = 60 * time.Second

func (t *trial) ready(all ...*job) {
	for _, j := range all {
		ready := func() bool {
			for _, b := range j.boards {
				if b.Get(gauge.Ready) == 0 {
					return false
				}
			}
			return true
		}
		if !t.comes(getsReady, ready) {
			panic(fmt.Errorf("job %d (%s) did not get ready: %s; %s", j.id, j.load, j.says(), t.asRoot("squeue -h -o '%i %T %r'")))
		}
	}
}

func letGo(all ...*job) {
	for _, j := range all {
		for _, b := range j.boards[:j.active] {
			b.Set(gauge.Go)
		}
	}
}

// cancelAll ends all jobs, and waits for their epilogs.
func (t *trial) cancelAll() {
	if len(t.jobs) == 0 {
		return
	}
	var ids []string
	for _, j := range t.jobs {
		for _, b := range j.boards {
			b.Set(gauge.Stop)
		}
		ids = append(ids, fmt.Sprint(j.id))
	}
	t.jobs = nil
	line := strings.Join(ids, ",")
	if !t.comes(3*time.Second, func() bool { return t.gone(line) }) {
		t.Cluster.Run(t.ctx, t.Root(), fmt.Sprintf("scancel --signal=KILL %s; scancel %[1]s", strings.Join(ids, " "))) // one that is frozen hears of nothing else
		if !t.comes(40*time.Second, func() bool { return t.gone(line) }) {
			t.row("jobs "+line, "STAY", "40 s after scancel")
		}
	}
}

func (t *trial) gone(ids string) bool {
	result := t.Cluster.Run(t.ctx, t.Root(), "squeue -h -j "+ids)
	return strings.TrimSpace(result.Stdout) == ""
}

// done is how many kernels have ended.
func (j *job) done() (n uint64) {
	for _, b := range j.boards {
		n += b.Done()
	}
	return n
}

func (j *job) kernelMS() float64 { return j.boards[0].KernelMS() }

// counted is what vgpud has of the job's first slice.
func (t *trial) counted(j *job) ledger.TimeDevice {
	devices, err := ledger.ReadTime(t.run().Time(j.id), j.id)
	if err != nil || len(devices) == 0 {
		return ledger.TimeDevice{}
	}
	return devices[0]
}
