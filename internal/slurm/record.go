// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// The fields that scontrol prints of a job, in the order of every release from 22.05 to 26.05:
//
//	JobId= ArrayJobId= ArrayTaskId= HetJobId= … JobName= … UserId= … JobState= … Requeue= Restarts= BatchFlag= … CoreSpec=
//	JOB_GRES=
//	  Nodes= CPU_IDs= Mem= GRES=                  (a line for each kind of node)
//	MinCPUsNode= … Features= DelayBoot= ClusterFeatures= Prefer= Reservation= OverSubscribe= …
//	Command= Comment= …
//
// JOB_GRES= and the fields up to MinCPUsNode= are missing when the job holds nothing. Users write the
// job's name, wckey, crontab line, submitting host and batch features, which come before it, the
// cluster features after it, and all that is after OverSubscribe=, of which nothing is read.
// Features and reservations must exist for the job to be accepted, preferred features likewise,
// which are not trusted all the same.
var (
	detailStart = pattern.Late(`\sJOB_GRES=(\S*)`)
	detailFrom  = pattern.Late(`\s(?:Core|Thread)Spec=\S*$`) // is always printed
	detailNodes = pattern.Late(`^\s+Nodes=(\S*) CPU_IDs=\S* Mem=\S* GRES=(\S*)`)
	detailEnd   = pattern.Late(`^\s+MinCPUsNode=`)
	sharing     = pattern.Late(`^((?:\s(?:MinCPUsNode|MinMemoryCPU|MinMemoryNode|MinTmpDiskNode|MemUpdate|Features|DelayBoot|` +
		`ClusterFeatures|Prefer|Reservation)=\S*)+)\sOverSubscribe=(\S*)(?:\sExclusive=(\S*))?\sContiguous=`)
	userFeatures = pattern.Late(`\s(?:ClusterFeatures|Prefer)=`)
	userID       = pattern.Late(`^[^()]*\(([0-9]+)\)$`)
	// Nothing of a user's stands before JobName=.
	wholeJob = pattern.Late(`^JobId=[0-9]+ (?:ArrayJobId=([0-9]+) ArrayTaskId=(\S+) |HetJobId=([0-9]+) )?`)
)

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
	job := Job{ID: id}
	if err := job.readWhole(text); err != nil {
		return Job{}, err
	}
	head, tail, err := job.readDetail(text)
	if err != nil {
		return Job{}, err
	}
	field := func(key string) string {
		value, fieldErr := only(head, key)
		if fieldErr != nil && err == nil {
			err = fieldErr
		}
		return value
	}
	user := userID().FindStringSubmatch(field("UserId"))
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
	job.Submitted = submitted(head)
	job.Account, job.QOS = nameIn(head, "Account"), nameIn(head, "QOS")
	if job.detailed {
		job.Exclusive, err = hasWholeNodes(tail)
		job.MemTyped = memTyped(tail)
	}
	job.readPlace(head, tail)
	return job, err
}

// memTyped looks among texts of the job's owner, who can imitate this: it decides about a default of his own, within
// what Slurm counted.
func memTyped(tail string) bool {
	gres, err := only(tail, "TresPerNode")
	return err == nil && request.MemFirst(gres)
}

// submitted is zero where it cannot be known: a user's text may imitate it.
func submitted(head string) time.Time {
	text, err := only(head, "SubmitTime")
	if err != nil {
		return time.Time{}
	}
	seconds, err := strconv.ParseInt(text, 10, 64) // SLURM_TIME_FORMAT=%s
	if err != nil || seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// nameIn is "" where a text of the job's owner imitates it, too.
func nameIn(head, key string) string {
	name, err := only(head, key)
	if err != nil || name == "(null)" {
		return ""
	}
	return name
}

// readWhole finds out what the job is a part of.
func (j *Job) readWhole(text string) error {
	found := wholeJob().FindStringSubmatch(text)
	for i, into := range map[int]*uint32{1: &j.ArrayJobID, 3: &j.HetJobID} {
		if found == nil || found[i] == "" {
			continue
		}
		number, err := strconv.ParseUint(found[i], 10, 32)
		if err != nil {
			return fmt.Errorf("read job %d: its array or heterogeneous job: %w", j.ID, err)
		}
		*into = uint32(number)
	}
	if j.ArrayJobID != 0 {
		j.ArrayTaskID = found[2]
	}
	return nil
}

// readDetail cuts the answer where it says what was allocated on which node: lines that follow
// JOB_GRES= without a gap and end at MinCPUsNode=. A job that holds nothing has none; then all of
// the text is head. That a user wrote JOB_GRES= shows by what stands before it.
func (j *Job) readDetail(text string) (head, tail string, err error) {
	starts := detailStart().FindAllStringSubmatchIndex(text, -1)
	if len(starts) == 0 {
		return text, "", nil
	}
	if len(starts) > 1 {
		return "", "", fmt.Errorf("%w: JOB_GRES= %d times", ErrAmbiguous, len(starts))
	}
	start := starts[0]
	head, tail = text[:start[0]], text[start[1]:]
	if !detailFrom().MatchString(head) || count(head, "CoreSpec")+count(head, "ThreadSpec") != 1 {
		return "", "", fmt.Errorf("%w: JOB_GRES= is not where Slurm prints it", ErrAmbiguous)
	}
	for {
		match := detailNodes().FindStringSubmatch(tail)
		if match == nil {
			break
		}
		j.nodes = append(j.nodes, nodeGRES{match[1], match[2]})
		tail = tail[len(match[0]):]
	}
	if !detailEnd().MatchString(tail) {
		return "", "", fmt.Errorf("%w: JOB_GRES= is not followed by what each node gives", ErrAmbiguous)
	}
	j.detailed, j.total = true, text[start[2]:start[3]]
	return head, tail, nil
}

// hasWholeNodes reads what comes after the detail. Until 25.11 OverSubscribe=NO is a job with whole nodes;
// from 26.05 on every job of a partition that is not shared has that, and Exclusive= tells
// (src/common/slurm_protocol_defs.c, get_job_oversubscribe_value).
func hasWholeNodes(tail string) (bool, error) {
	found := sharing().FindStringSubmatch(tail)
	if found == nil || userFeatures().MatchString(found[1]) && count(tail, "OverSubscribe") != 1 {
		return false, fmt.Errorf("%w: OverSubscribe= is not where Slurm prints it", ErrAmbiguous)
	}
	shared, exclusive := found[2], found[3]
	if exclusive == "" {
		exclusive = shared
		if shared == "NO" {
			exclusive = "NODE"
		}
	}
	return exclusive == "NODE" || exclusive == "TOPO", nil
}

// only returns the value of a key that must stand in the text exactly once.
func only(text, key string) (string, error) {
	if n := count(text, key); n != 1 {
		return "", fmt.Errorf("%w: %s= %d times", ErrAmbiguous, key, n)
	}
	return first(text, key), nil
}

func first(text, key string) string {
	at := -1
	for _, blank := range blanks {
		if i := strings.Index(text, blank+key+"="); i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	if at < 0 {
		return ""
	}
	value := text[at+len(key)+2:]
	if end := strings.IndexAny(value, strings.Join(blanks, "")); end >= 0 {
		value = value[:end]
	}
	return value
}

func count(text, key string) (n int) {
	for _, blank := range blanks {
		n += strings.Count(text, blank+key+"=")
	}
	return n
}

// blanks is every character that \s of the expressions above matches.
var blanks = []string{" ", "\n", "\t", "\r", "\f"}
