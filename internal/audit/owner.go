// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// maxText bounds what is read of a process, which decides itself how large its environment is.
const maxText = 1 << 20

type owner int

const (
	ofJob owner = iota
	ofNobody
	gone // it is not there, or not to be seen
)

// known is what is known of the jobs that hold slices.
type known struct {
	uids   map[uint32]uint32 // of each job
	sluids map[string]uint32 // which job a run's SLUID is of; Slurm 25.11 and later
	silent map[uint32]bool   // users of whose processes one has not answered
}

// jobOf says which job a process is of. The ledger is not asked: a process that has gone around the
// interposer is not in it, and is what this is for. What says so is the cgroup that Slurm put the
// process in. Only where Slurm has none is it the limits page in its mount namespace, or else its
// environment: its own user can have made them, and so book it on another of his jobs. A job of
// another user is believed of none of them.
func (a Auditor) jobOf(pid int, jobs known) (job, uid uint32, is owner) {
	dir := filepath.Join(a.Proc, strconv.Itoa(pid))
	uid, ok := uidOf(dir)
	if !ok {
		return 0, 0, gone
	}
	believed := func(job uint32, ok bool) bool {
		jobUID, known := jobs.uids[job]
		return ok && known && jobUID == uid
	}
	if job, ok := jobs.ofCgroup(dir); ok {
		if believed(job, ok) {
			return job, uid, ofJob
		}
		return 0, uid, ofNobody
	}
	for _, ask := range []func(string) (uint32, bool){pageJob, a.environmentJob} {
		if job, ok := jobs.patiently(uid, func() (uint32, bool) { return ask(dir) }); believed(job, ok) {
			return job, uid, ofJob
		}
	}
	return 0, uid, ofNobody
}

// Owners says which of the jobs that hold slices these processes are of, all that the driver names. Processes of no job are left out. Where
// not every process of the node can be seen, nothing follows from what is not there.
func (a Auditor) Owners(granted []state.Slice, pids []int) (map[int]uint32, error) {
	owners := make(map[int]uint32, len(pids))
	if len(pids) == 0 {
		if !a.WholeNode {
			return nil, errors.New("the driver names no process in this pid namespace")
		}
		return owners, nil
	}
	jobs := a.known(granted)
	for _, pid := range pids {
		job, _, is := a.jobOf(pid, jobs)
		switch {
		case is == ofJob:
			owners[pid] = job
		case is == gone && !a.WholeNode:
			return nil, fmt.Errorf("the driver names process %d, which is not in this pid namespace", pid)
		}
	}
	return owners, nil
}

// userWait bounds what a user can make anybody wait: what his process has in its root folder, and the memory in which
// its environment lies, can be in a file system of his that does not answer.
const userWait = time.Second

// patiently asks what the user of a process may have made, and no more of a user who has let somebody wait.
func (k known) patiently(uid uint32, ask func() (uint32, bool)) (job uint32, ok bool) {
	if k.silent[uid] {
		return 0, false
	}
	type answer struct {
		job uint32
		ok  bool
	}
	said, err := within(userWait, func() (answer, error) {
		job, ok := ask()
		return answer{job, ok}, nil
	})
	if err != nil {
		k.silent[uid] = true
	}
	return said.job, said.ok
}

// buffers are for texts of /proc: memory that is used again is cheaper than new one.
var buffers = sync.Pool{New: func() any { return new(make([]byte, 0, 4096)) }}

// overText hands what a file of /proc says to somebody who keeps nothing of it: empty where it cannot be read.
func overText(path string, look func(text []byte)) {
	buffer := buffers.Get().(*[]byte)
	*buffer = readText(path, *buffer)
	look(*buffer)
	buffers.Put(buffer)
}

// readText reads as much as there is, into buffer if that is large enough. It goes around package os, which would have its poller
// look at each file of /proc; a node has thousands.
func readText(path string, buffer []byte) []byte {
	text := buffer[:0]
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return text
	}
	defer unix.Close(fd)
	for len(text) < maxText {
		text = slices.Grow(text, 1024)
		n, err := unix.Read(fd, text[len(text):min(cap(text), maxText)])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 {
			break
		}
		text = text[:len(text)+n]
	}
	return text
}

// uidOf is the real user of a process.
func uidOf(dir string) (uid uint32, ok bool) {
	overText(filepath.Join(dir, "status"), func(text []byte) {
		if fields := bytes.Fields(lineOf(text, "Uid:")); len(fields) > 0 {
			uid, ok = number(string(fields[0]))
		}
	})
	return uid, ok
}

// lineOf is what stands behind a word at the beginning of a line.
func lineOf(text []byte, word string) []byte {
	for line := range bytes.Lines(text) {
		if rest, found := bytes.CutPrefix(line, []byte(word)); found {
			return rest
		}
	}
	return nil
}

// Slurm's cgroup of a step: …/uid_1000/job_5/step_0 with cgroup/v1, …/slurmstepd.scope/job_5/step_0 with cgroup/v2,
// and from 26.05 on the run's SLUID for job_5 there (src/plugins/cgroup/v2/cgroup_v2.c), unless
// CgroupJobIdPaths=yes. The leftmost is Slurm's; a user may make others below it, and where systemd
// gave him a folder of his own.
var cgroupPath = pattern.Late(`^(.*?/(?:uid_[0-9]+|[^/]*slurmstepd\.scope)/(?:job_([0-9]+)|(s[0-9A-Z]{13}))/step_([^/]+))`)

// placed is where Slurm put a process, in one hierarchy.
type placed struct {
	controllers      string // of the hierarchy; "": cgroup v2
	job, sluid, step string
	folder, leaf     string // the step's, and the process's own below it
	above            bool   // the cgroup namespace of who asks: these names are of no use to him
}

// cgroups are those of Slurm's that a process is in.
func cgroups(dir string) (found []placed) {
	var text string
	overText(filepath.Join(dir, "cgroup"), func(said []byte) { text = string(said) })
	for line := range strings.Lines(text) {
		head, path, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "/") // "5:devices:/slurm/…"
		_, controllers, _ := strings.Cut(strings.TrimSuffix(head, ":"), ":")
		here := placed{controllers: controllers}
		for strings.HasPrefix(path, "../") {
			path, here.above = path[len("../"):], true
		}
		here.leaf = "/" + path
		if parts := cgroupPath().FindStringSubmatch(here.leaf); parts != nil && !strings.HasPrefix(path, "user.slice/") {
			here.folder, here.job, here.sluid, here.step = parts[1], parts[2], parts[3], parts[4]
			found = append(found, here)
		}
	}
	return found
}

// ofCgroup says which job Slurm put a process into: 0 is one that holds no slice. Nothing is said of
// a process that Slurm put nowhere, or of which its cgroups say different things.
func (k known) ofCgroup(dir string) (job uint32, ok bool) {
	for _, at := range cgroups(dir) {
		here := k.sluids[at.sluid]
		if at.sluid == "" {
			here, _ = number(at.job)
		}
		if ok && here != job {
			return 0, false
		}
		job, ok = here, true
	}
	return job, ok
}

// pageJob is for strict isolation: the step's folder is bound in the mount namespace of the task.
func pageJob(dir string) (uint32, bool) {
	job, err := ledger.ReadForeignJob(filepath.Join(dir, "root", rundir.Self, ledger.LimitsFile))
	return job, err == nil
}

// environmentJob is for preload isolation.
func (a Auditor) environmentJob(dir string) (job uint32, ok bool) {
	begin := []byte("VGPU_STEP_DIR=" + a.Run.Jobs() + "/")
	overText(filepath.Join(dir, "environ"), func(text []byte) {
		for variable := range bytes.SplitSeq(text, []byte{0}) {
			if rest, found := bytes.CutPrefix(variable, begin); found {
				name, _, _ := bytes.Cut(rest, []byte("/"))
				job, ok = number(string(name))
				return
			}
		}
	})
	return job, ok
}

func number(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil
}
