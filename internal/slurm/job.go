// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// Job is what the controller says about a job.
type Job struct {
	ID        uint32
	UID       uint32
	State     string // RUNNING, COMPLETING, …
	Batch     bool
	Requeue   bool // the job may be requeued
	Restarts  int
	Exclusive bool   // the job got whole nodes, with all countable GRES of them
	asked     string // TresPerNode
	detailed  bool
	nodes     []nodeGRES
}

// nodeGRES is one line of scontrol's detail: "Nodes=n[08-09] … GRES=vgpu(CNT:1),gpumem(CNT:3000)".
type nodeGRES struct{ nodes, gres string }

var (
	detailStart = regexp.MustCompile(`\sJOB_GRES=\S*`)
	detailNodes = regexp.MustCompile(`^\s+Nodes=(\S*) CPU_IDs=\S* Mem=\S* GRES=(\S*)`)
	detailEnd   = regexp.MustCompile(`^\s+MinCPUsNode=`)
	userID      = regexp.MustCompile(`^[^()]*\(([0-9]+)\)$`)
)

// Finished says that the job, in the run that has this restart count, no longer uses its nodes. A
// state that this release does not know is not finished: better a slice too long than too short.
func (j Job) Finished(restart int) bool {
	switch j.State {
	case "PENDING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
		"OUT_OF_MEMORY", "REVOKED", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD":
		return true
	case "RUNNING":
		return j.Restarts > restart
	}
	return false // COMPLETING as well: the processes of the run before a restart can still be there
}

// Entitlement is what Slurm allocated to the job on a node. A job with whole nodes gets all
// countable GRES of them without asking; it is entitled to what it asked for.
func (j Job) Entitlement(node string) (request.Entitlement, error) {
	if !j.detailed {
		return request.Entitlement{}, ErrNoDetail
	}
	for _, n := range j.nodes {
		if !HostlistContains(n.nodes, node) {
			continue
		}
		allocated, err := request.ParseGRES(n.gres)
		if err != nil {
			return request.Entitlement{}, err
		}
		if !j.Exclusive {
			return allocated, nil
		}
		asked, err := request.ParseGRES(j.asked)
		if err != nil {
			return request.Entitlement{}, err
		}
		return request.Entitlement{Slices: min(allocated.Slices, asked.Slices), MemMiB: min(allocated.MemMiB, asked.MemMiB),
			SMPercent: min(allocated.SMPercent, asked.SMPercent)}, nil
	}
	return request.Entitlement{}, fmt.Errorf("%w on node %s", ErrNoDetail, node)
}

func countRecords(text string) int {
	n := strings.Count(text, "\nJobId=")
	if strings.HasPrefix(text, "JobId=") {
		n++
	}
	return n
}

func parseJob(text string, id uint32) (Job, error) {
	if countRecords(text) != 1 || !strings.HasPrefix(text, fmt.Sprintf("JobId=%d ", id)) {
		return Job{}, fmt.Errorf("%w: %d records, want that of job %d alone", ErrAmbiguous, countRecords(text), id)
	}
	// Before JOB_GRES= the only text of a user is the job's name; all others come after the detail.
	head, nodes, tail, err := parseDetail(text)
	if err != nil {
		return Job{}, err
	}
	job := Job{ID: id, detailed: head != text, nodes: nodes}
	field := func(key string) string {
		value, fieldErr := only(head, key)
		if fieldErr != nil && err == nil {
			err = fieldErr
		}
		return value
	}
	user := userID.FindStringSubmatch(field("UserId"))
	job.State = field("JobState")
	restarts, convErr := strconv.Atoi(field("Restarts"))
	job.Batch = field("BatchFlag") != "0"
	job.Requeue = field("Requeue") == "1"
	if err != nil {
		return Job{}, err
	}
	if user == nil || convErr != nil || job.State == "" {
		return Job{}, fmt.Errorf("read job %d: no user, state or restart count", id)
	}
	uid, err := strconv.ParseUint(user[1], 10, 32)
	if err != nil {
		return Job{}, fmt.Errorf("read job %d: user id: %w", id, err)
	}
	job.UID, job.Restarts = uint32(uid), restarts
	shared, _ := first(tail, "OverSubscribe")
	job.Exclusive = shared == "NO"
	// Only whole-node jobs are held to it, and it can only lower what they are entitled to.
	job.asked, _ = first(tail, "TresPerNode")
	return job, nil
}

// parseDetail cuts the answer where it says what was allocated on which node: lines that follow
// JOB_GRES= without a gap and end at MinCPUsNode=. A job that holds nothing has none; then all of
// the text is head.
func parseDetail(text string) (head string, nodes []nodeGRES, tail string, err error) {
	starts := detailStart.FindAllStringIndex(text, -1)
	if len(starts) == 0 {
		return text, nil, "", nil
	}
	if len(starts) > 1 {
		return "", nil, "", fmt.Errorf("%w: JOB_GRES= more than once", ErrAmbiguous)
	}
	head, tail = text[:starts[0][0]], text[starts[0][1]:]
	for {
		match := detailNodes.FindStringSubmatch(tail)
		if match == nil {
			break
		}
		nodes = append(nodes, nodeGRES{match[1], match[2]})
		tail = tail[len(match[0]):]
	}
	if !detailEnd.MatchString(tail) {
		return "", nil, "", fmt.Errorf("%w: JOB_GRES= is not followed by what each node gives", ErrAmbiguous)
	}
	return head, nodes, tail, nil
}

// only returns the value of a key that must stand in the text exactly once.
func only(text, key string) (string, error) {
	if n := count(text, key); n != 1 {
		if n == 0 {
			return "", fmt.Errorf("read job: no %s=", key)
		}
		return "", fmt.Errorf("%w: %s= %d times", ErrAmbiguous, key, n)
	}
	value, _ := first(text, key)
	return value, nil
}

func first(text, key string) (string, bool) {
	at := -1
	for _, blank := range blanks {
		if i := strings.Index(text, blank+key+"="); i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	if at < 0 {
		return "", false
	}
	value := text[at+len(key)+2:]
	if end := strings.IndexAny(value, strings.Join(blanks, "")); end >= 0 {
		value = value[:end]
	}
	return value, true
}

func count(text, key string) (n int) {
	for _, blank := range blanks {
		n += strings.Count(text, blank+key+"=")
	}
	return n
}

// blanks is every character that \s of the expressions above matches.
var blanks = []string{" ", "\n", "\t", "\r", "\f"}
