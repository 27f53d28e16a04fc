// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package usage is what a finished job was granted and used on this node: the record that
// vgpu-epilog leaves in the spool, its short form in Slurm's accounting (AdminComment), and the
// reporter that carries one to the other.
package usage

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// RecordVersion is the layout of a usage record.
const RecordVersion = 1

// maxRecordBytes bounds a record file: 16 devices of 256 steps are some 300 KiB.
const maxRecordBytes = 1 << 20

// ErrRecord is wrapped when a file in the spool is no usage record of this layout.
var ErrRecord = errors.New("not a usage record of this version")

// Record is one run of one job on this node.
type Record struct {
	Version     int                 `json:"version"`
	Job         uint32              `json:"job"` // each task of an array has its own
	Restart     int                 `json:"restart"`
	Node        string              `json:"node"`
	UID         uint32              `json:"uid"`
	Submitted   time.Time           `json:"submitted,omitzero"` // as the run's row in the accounting database has it
	Start       time.Time           `json:"start"`              // when the slices were granted
	End         time.Time           `json:"end"`                // when they were released
	Request     string              `json:"request"`
	Entitlement request.Entitlement `json:"entitlement"`
	Refusal     string              `json:"refusal,omitempty"`  // set: nothing was granted, and this is why
	Requeued    bool                `json:"requeued,omitempty"` // the refused job went back into the queue
	Devices     []Device            `json:"devices"`
	Steps       []Step              `json:"steps,omitempty"`
	// Outcome is what became of the report, in words; empty while it waits in the spool.
	Outcome string `json:"outcome,omitempty"`
}

// Device is one slice: what was granted and what was used of it.
type Device struct {
	Device    device.UUID      `json:"device"`
	Index     device.NVMLIndex `json:"nvml_index"`
	MemMiB    int64            `json:"mem_mib"`
	SMPercent int              `json:"sm_percent"`
	PeakMiB   int64            `json:"peak_mib"`
	Refusals  uint64           `json:"refusals"` // allocations that the limit refused
	Time
}

// Time is the use of a GPU's time, in seconds.
type Time struct {
	GPUSeconds    float64 `json:"gpu_seconds"`    // used
	WaitedSeconds float64 `json:"waited_seconds"` // held back by the share; threads add up
}

// TimeOf rounds to milliseconds.
func TimeOf(used ledger.DeviceUsage) Time {
	seconds := func(ns uint64) float64 { return math.Round(float64(ns)/1e6) / 1e3 }
	return Time{seconds(used.BusyNs), seconds(used.WaitedNs)}
}

// Step is one step's part, in the order of the record's devices.
type Step struct {
	Step    string `json:"step"` // "0", "batch", …
	Devices []Peak `json:"devices"`
}

// Peak is a step's use of one slice.
type Peak struct {
	PeakMiB  int64  `json:"peak_mib"`
	Refusals uint64 `json:"refusals"`
	Time
}

// PeaksOf is a step's use.
func PeaksOf(devices []ledger.DeviceUsage) []Peak {
	peaks := make([]Peak, len(devices))
	for i, d := range devices {
		peaks[i] = Peak{PeakMiB: MiB(d.PeakBytes), Refusals: d.Refusals, Time: TimeOf(d)}
	}
	return peaks
}

// MiB rounds bytes up, so that a use of less than one MiB does not read as none.
func MiB(bytes uint64) int64 {
	mib := int64(bytes >> 20)
	if bytes&(1<<20-1) != 0 {
		mib++
	}
	return mib
}

// fileName is JOB.RESTART.json.
func fileName(job uint32, restart int) string { return fmt.Sprintf("%d.%d.json", job, restart) }

var fileNames = regexp.MustCompile(`^(0|[1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,9})\.json$`)

// parseFileName is the reverse of fileName.
func parseFileName(name string) (job uint32, restart int, ok bool) {
	parts := fileNames.FindStringSubmatch(name)
	if parts == nil {
		return 0, 0, false
	}
	id, err := strconv.ParseUint(parts[1], 10, 32)
	if err != nil {
		return 0, 0, false
	}
	restart, err = strconv.Atoi(parts[2])
	return uint32(id), restart, err == nil
}

// Write puts a record into the spool, whole or not at all. A record of the same run that waits there
// already is replaced; one that has been reported is not: a second epilog of a run changes nothing.
// The record's Version is set here.
func Write(spool rundir.Spool, rec Record) error {
	name := fileName(rec.Job, rec.Restart)
	if old, err := readRecord(filepath.Join(spool.History(), name)); err == nil && old.Start.Equal(rec.Start) {
		return nil
	}
	for _, dir := range []string{spool.Usage(), spool.History()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("write usage record: %w", err)
		}
	}
	return writeRecord(filepath.Join(spool.Usage(), name), rec)
}

func writeRecord(path string, rec Record) error {
	rec.Version = RecordVersion
	if rec.Devices == nil {
		rec.Devices = []Device{}
	}
	data, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("write usage record %s: %w", path, err)
	}
	if err := trusted.WriteFile(path, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write usage record: %w", err)
	}
	return nil
}

// readRecord reads a record of the spool or the history; the file must be a trusted one, since
// what stands in it goes into the accounting database.
func readRecord(path string) (Record, error) {
	data, err := trusted.ReadFile(path, maxRecordBytes)
	if err != nil {
		return Record{}, fmt.Errorf("read usage record: %w", err)
	}
	var rec Record
	if err := json.Unmarshal(data, &rec); err != nil {
		return Record{}, fmt.Errorf("read usage record %s: %w: %w", path, ErrRecord, err)
	}
	job, restart, ok := parseFileName(filepath.Base(path))
	switch {
	case rec.Version != RecordVersion:
		return Record{}, fmt.Errorf("read usage record %s: %w: version %d, want %d", path, ErrRecord, rec.Version, RecordVersion)
	case !ok || job != rec.Job || restart != rec.Restart:
		return Record{}, fmt.Errorf("read usage record %s: %w: it is of job %d restart %d", path, ErrRecord, rec.Job, rec.Restart)
	case rec.Node == "":
		return Record{}, fmt.Errorf("read usage record %s: %w: it names no node", path, ErrRecord)
	}
	return rec, nil
}

// List returns the records that wait in the spool, oldest first, and the names of files there that
// are none. A spool that does not exist is empty.
func List(spool rundir.Spool) (records []Record, bad []string, err error) {
	entries, err := os.ReadDir(spool.Usage())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list usage records: %w", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if name == lockName || name[0] == '.' { // renameio's temporary files begin with a dot
			continue
		}
		rec, err := readRecord(filepath.Join(spool.Usage(), name))
		switch {
		case errors.Is(err, fs.ErrNotExist): // reported meanwhile
		case errors.Is(err, fs.ErrPermission):
			return nil, nil, fmt.Errorf("list usage records: %w", err)
		case err != nil:
			bad = append(bad, name)
		default:
			records = append(records, rec)
		}
	}
	sortByEnd(records)
	return records, bad, nil
}

// Find returns the records of a job's runs here, from the spool and the history, the newest run last.
// There is none: fs.ErrNotExist.
func Find(spool rundir.Spool, job uint32) ([]Record, error) {
	runs := make(map[int]Record)
	var unreadable error
	for _, dir := range []string{spool.History(), spool.Usage()} {
		names, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("%d.*.json", job)))
		if err != nil {
			return nil, fmt.Errorf("find usage record: %w", err)
		}
		if _, err := os.ReadDir(dir); errors.Is(err, fs.ErrPermission) {
			unreadable = err
		}
		for _, path := range names {
			rec, err := readRecord(path)
			if err != nil {
				unreadable = err
				continue
			}
			runs[rec.Restart] = rec
		}
	}
	switch {
	case len(runs) > 0:
		return slices.SortedFunc(maps.Values(runs), func(a, b Record) int { return cmp.Compare(a.Restart, b.Restart) }), nil
	case unreadable != nil:
		return nil, unreadable
	}
	return nil, fmt.Errorf("find usage record of job %d: %w", job, fs.ErrNotExist)
}
