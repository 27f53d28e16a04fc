// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
)

// WaitsPrefix begins the AdminComment of a job that waits for room on a GPU. It shows that the text is not a report, and not
// the site's.
const WaitsPrefix = "vgpu: waits: "

// maxReason keeps a comment short enough for a line of scontrol.
const maxReason = 1000

// Wait is what becomes of a pending job that found no room on a node.
type Wait struct {
	For       time.Duration // it is not started before
	Reason    string        // "": none
	Elsewhere bool          // Excluded is to be set
	Excluded  string        // host list
}

// Soon is more than the nodes need to let go of a requeued job: Slurm takes a start that has passed by then for none.
const Soon = 5 * time.Second

// Wait changes a pending job. Its own comment stays.
//
// A start that lies ahead when the nodes have let go of the job is kept; one that does not is put off by
// cred_expire, two minutes where nothing is configured (slurmctld/job_mgr.c, batch_requeue_fini; tried with 22.05.8).
func (c Client) Wait(ctx context.Context, job Job, w Wait) error {
	name, err := job.Name()
	if err != nil {
		return fmt.Errorf("let job %d wait: %w", job.ID, err)
	}
	changes := []string{"update", "JobId=" + name, "StartTime=now"}
	if w.For > 0 {
		changes[2] = fmt.Sprintf("StartTime=now+%d", int64(w.For/time.Second))
	}
	if !job.commented {
		comment := ""
		if w.Reason != "" {
			comment = WaitsPrefix + w.Reason[:min(len(w.Reason), maxReason)]
		}
		changes = append(changes, "AdminComment="+comment)
	}
	if w.Elsewhere {
		changes = append(changes, "ExcNodeList="+w.Excluded)
	}
	if job.numTasks != 0 { // with any change Slurm 24.11 makes it one task else, which it then finds never runnable
		changes = append(changes, fmt.Sprintf("NumTasks=%d", job.numTasks))
	}
	err = retry(ctx, c.Timeout, func(ctx context.Context) error {
		_, err := run(ctx, c.Scontrol, changes...)
		if err != nil && ctx.Err() == nil && !unreachable(err) && !notYet(err) {
			err = errors.Join(errRefused, err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("let job %d wait: %w", job.ID, err)
	}
	return nil
}

// notYet recognises what slurmctld says of a job of which it has told the database a moment ago, also after its own restart, when it has
// waited 5 s for the answer (ESLURM_JOB_SETTING_DB_INX; seen with 22.05.8).
func notYet(err error) bool { return strings.Contains(err.Error(), "try again in a bit") }

// Waits is what the controller shows a job's owner while it waits for room on a GPU; "" if it does not.
func (c Client) Waits(ctx context.Context, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	text, err := run(ctx, c.Scontrol, "show", "job", id)
	if err != nil {
		return "", err
	}
	reason := ""
	for line := range strings.Lines(text) {
		if found, waits := strings.CutPrefix(strings.TrimSpace(line), "AdminComment="+WaitsPrefix); waits {
			reason = found
		}
	}
	pending := strings.Contains(text, "JobState=PENDING") || strings.Contains(text, "JobState=COMPLETING")
	if !pending {
		return "", nil
	}
	return Printable(reason), nil
}

// Standing is where a job stands, in words of squeue.
type Standing struct {
	State, Reason, Nodes string
	Begins               time.Time // or has begun; of one that waits, not before; zero: not known
}

// Waits says that the job is in the queue. One that was put back a moment ago is still COMPLETING.
func (s Standing) Waits() bool { return s.State == "PENDING" }

// Runs says that the job has its nodes.
func (s Standing) Runs() bool {
	return slices.Contains([]string{"RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"}, s.State)
}

// HasRun says of a job that has ended that it ran, here or elsewhere: only a run leads to these states.
func (s Standing) HasRun() bool {
	return slices.Contains([]string{"COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "PREEMPTED", "NODE_FAIL"}, s.State)
}

// Held says that its user or an administrator holds it, or that it waits for another job.
func (s Standing) Held() bool {
	if slices.Contains([]string{"SPECIAL_EXIT", "REQUEUE_HOLD", "REQUEUED", "RESV_DEL_HOLD"}, s.State) {
		return true
	}
	return s.Waits() && (strings.HasPrefix(s.Reason, "JobHeld") || strings.Contains(s.Reason, "held") || strings.HasPrefix(s.Reason, "Dependency"))
}

// Standings asks about many jobs at once; those that slurmctld does not know are missing.
func (c Client) Standings(ctx context.Context, ids []uint32) (map[uint32]Standing, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	jobs, err := c.squeue(ctx, ids, "all", "%T|%r|%N|%S")
	if err != nil {
		return nil, fmt.Errorf("ask who waits: %w", err)
	}
	found := make(map[uint32]Standing)
	for id, cells := range jobs {
		standing := Standing{State: cells[0], Reason: cells[1], Nodes: cells[2]}
		if seconds, err := strconv.ParseInt(cells[3], 10, 64); err == nil { // SLURM_TIME_FORMAT=%s
			standing.Begins = time.Unix(seconds, 0)
		}
		found[id] = standing
	}
	return found, nil
}

// AskedAlone is how many jobs are asked for one by one. slurmctld looks up a single job; of several squeue is sent all jobs that there
// are, and picks.
const AskedAlone = 8

// squeue asks about those of the jobs that are in these states. Cells are what the format, parted by bars, prints of each.
func (c Client) squeue(ctx context.Context, ids []uint32, states, format string) (map[uint32][]string, error) {
	list := make([]string, 0, len(ids))
	for _, id := range ids {
		list = append(list, strconv.FormatUint(uint64(id), 10))
	}
	if len(list) > AskedAlone {
		list = []string{strings.Join(list, ",")}
	}
	jobs := make(map[uint32][]string)
	for _, some := range list {
		text, err := run(ctx, c.Squeue, "--noheader", "--all", "--states="+states, "--jobs="+some, "--format=%A|"+format)
		if err != nil && !errors.Is(err, ErrUnknownJob) { // which is said of a single job
			return nil, err
		}
		for line := range strings.Lines(text) {
			cells := strings.Split(Printable(strings.TrimSpace(line)), "|")
			id, err := strconv.ParseUint(cells[0], 10, 32)
			if len(cells) != strings.Count(format, "|")+2 || err != nil {
				return nil, fmt.Errorf("squeue printed %q", line)
			}
			if slices.Contains(ids, uint32(id)) { // and none of its array's
				jobs[uint32(id)] = cells[1:]
			}
		}
	}
	return jobs, nil
}

// nodeStates are those in which a node takes jobs, now or later, without what sinfo marks them with.
var nodeStates = []string{"idle", "mix", "mixed", "alloc", "allocated", "comp", "completing", "plnd", "planned"}

// Elsewhere says whether the job may run without a node: whether enough others of its partition take jobs, have slices,
// and are what it asks for, as far as can be seen.
func (c Client) Elsewhere(ctx context.Context, job Job, node string) (bool, error) {
	if job.required != "" || job.unclear || job.HetJobID != 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	text, err := run(ctx, filepath.Join(filepath.Dir(c.Squeue), "sinfo"), "--noheader", "--Node", "--partition="+job.Partition, "--format=%N|%t|%f|%G")
	if err != nil {
		return false, fmt.Errorf("ask for other nodes: %w", err)
	}
	others := make(map[string]bool)
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 4 {
			return false, fmt.Errorf("ask for other nodes: sinfo printed %q", line)
		}
		name, state, gres := cells[0], strings.TrimRight(cells[1], "*~#!%$@^-+"), cells[3]
		if name != node && slices.Contains(nodeStates, state) && strings.Contains(","+gres, ",vgpu:") &&
			!HostlistContains(job.Excluded, name) && hasAll(strings.Split(cells[2], ","), job.features) {
			others[name] = true
		}
	}
	return len(others) >= max(job.numNodes, 1), nil
}

func hasAll(has, wanted []string) bool {
	for _, w := range wanted {
		if !slices.Contains(has, w) {
			return false
		}
	}
	return true
}

// Readmit says where the job must not run any more, if one node is taken from that. Where the answer about the job is
// not clear, it is what stood there before.
func (c Client) Readmit(ctx context.Context, job Job, node, before string) (string, error) {
	if job.unclear {
		return before, nil
	}
	text, err := run(ctx, c.Scontrol, "show", "hostnames", job.Excluded)
	if err != nil {
		return "", err
	}
	left := slices.DeleteFunc(strings.Fields(text), func(name string) bool { return name == node })
	return strings.Join(left, ","), nil
}

// With is a host list with one node more.
func With(list, node string) string {
	if list == "" {
		return node
	}
	return list + "," + node
}

// features are names that must all be there; anything else that Slurm understands is odd.
var plainFeatures = pattern.Late(`^(?:\(null\)|[\w.:+-]+(?:[&,][\w.:+-]+)*)$`)

// readPlace reads where a job may run and how long. Where a text of its owner imitates that, nothing is changed.
func (j *Job) readPlace(head, tail string) {
	value := func(key string) string {
		value, err := only(head, key)
		j.unclear = j.unclear || err != nil
		if value == "(null)" {
			return ""
		}
		return value
	}
	j.Partition, j.Excluded, j.required = value("Partition"), value("ExcNodeList"), value("ReqNodeList")
	nodes, _, _ := strings.Cut(value("NumNodes"), "-")
	j.numNodes, _ = strconv.Atoi(nodes)
	if seconds, err := strconv.ParseInt(value("EndTime"), 10, 64); err == nil && seconds > 0 {
		j.Ends = time.Unix(seconds, 0).UTC()
	}
	j.Limit = limit(value("TimeLimit"))
	if found := sharing().FindString(tail); found != "" {
		features := first(found, "Features")
		j.unclear = j.unclear || !plainFeatures().MatchString(features) || count(found, "Reservation") > 0
		if features != "(null)" {
			j.features = strings.FieldsFunc(features, func(r rune) bool { return r == '&' || r == ',' })
		}
	}
	if tasks, err := only(head, "NumTasks"); err == nil && (tasksPerTRES().MatchString(head) || tasksPerTRES().MatchString(tail)) {
		j.numTasks, _ = strconv.Atoi(tasks)
	}
	j.readComment(head, tail)
}

// readComment reads whose AdminComment it is. Where a text of the job's owner imitates one, it is somebody else's: he could have the
// site's taken away.
func (j *Job) readComment(head, tail string) {
	const is = " AdminComment="
	for _, text := range []string{head, tail} {
		_, after, there := strings.Cut(text, is)
		j.HasText = j.HasText || there || strings.Contains(text, " Extra=")
		if there {
			j.commented = !strings.HasPrefix(after, WaitsPrefix) && !strings.HasPrefix(after, " ")
		}
	}
	j.commented = j.commented || strings.Count(head, is)+strings.Count(tail, is) > 1
}

// tasksPerTRES is what scontrol shows of a job with --ntasks-per-gpu.
var tasksPerTRES = pattern.Late(`\sNtasksPerTRES[:=][1-9]`)

// limitForm is [days-]hours:minutes:seconds.
var limitForm = pattern.Late(`^(?:([0-9]{1,6})-)?([0-9]{1,3}):([0-9]{2}):([0-9]{2})$`)

func limit(text string) (total time.Duration) {
	found := limitForm().FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		n, _ := strconv.Atoi(found[i+1]) // "": no days
		total += time.Duration(n) * unit
	}
	return total
}
