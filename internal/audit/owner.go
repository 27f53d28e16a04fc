// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// maxText bounds what is read of a process, which decides itself how large its environment is.
const maxText = 1 << 20

type owner int

const (
	ofJob owner = iota
	ofNobody
	gone // it is not there, or not to be seen
)

// jobOf says which job a process is of. The ledger is not asked: a process that has gone around the
// interposer is not in it, and is what this is for. What says so is, in this order, the cgroup that Slurm put the
// process in, the limits page in its mount namespace, and its environment, which only the
// process's own user can have made. A job of another user is believed of none of them.
func (a Auditor) jobOf(pid int, uids map[uint32]uint32) (uint32, owner) {
	dir := filepath.Join(a.Proc, strconv.Itoa(pid))
	uid, ok := uidOf(dir)
	if !ok {
		return 0, gone
	}
	for _, ask := range []func(string) (uint32, bool){cgroupJob, pageJob, a.environmentJob} {
		job, ok := ask(dir)
		if jobUID, known := uids[job]; ok && known && jobUID == uid {
			return job, ofJob
		}
	}
	return 0, ofNobody
}

func readText(path string) []byte {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	text, _ := io.ReadAll(io.LimitReader(file, maxText)) // as much as there is will do
	return text
}

// uidOf is the real user of a process.
func uidOf(dir string) (uint32, bool) {
	lines := bufio.NewScanner(bytes.NewReader(readText(filepath.Join(dir, "status"))))
	for lines.Scan() {
		if rest, found := strings.CutPrefix(lines.Text(), "Uid:"); found {
			if fields := strings.Fields(rest); len(fields) > 0 {
				uid, err := strconv.ParseUint(fields[0], 10, 32)
				return uint32(uid), err == nil
			}
		}
	}
	return 0, false
}

// Both versions of Slurm's cgroups: …/uid_1000/job_5/step_0 and …/slurmstepd.scope/job_5/step_0. The first is
// Slurm's; a user may make others below it.
var cgroupPath = regexp.MustCompile(`/job_([0-9]+)/step_`)

func cgroupJob(dir string) (uint32, bool) {
	found := cgroupPath.FindSubmatch(readText(filepath.Join(dir, "cgroup")))
	if found == nil {
		return 0, false
	}
	return number(string(found[1]))
}

// pageJob is for strict isolation: the step's folder is bound in the mount namespace of the task.
func pageJob(dir string) (uint32, bool) {
	limits, err := ledger.ReadLimits(filepath.Join(dir, "root", rundir.Self, ledger.LimitsFile))
	return limits.Job, err == nil
}

// environmentJob is for preload isolation.
func (a Auditor) environmentJob(dir string) (uint32, bool) {
	for _, variable := range bytes.Split(readText(filepath.Join(dir, "environ")), []byte{0}) {
		if rest, found := strings.CutPrefix(string(variable), "VGPU_STEP_DIR="+a.Run.Jobs()+"/"); found {
			job, _, _ := strings.Cut(rest, "/")
			return number(job)
		}
	}
	return 0, false
}

func number(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil
}
