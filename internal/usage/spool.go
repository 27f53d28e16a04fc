// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// fileName is JOB.RESTART.json.
func fileName(job uint32, restart int) string { return fmt.Sprintf("%d.%d.json", job, restart) }

// parseFileName is the reverse of fileName.
func parseFileName(name string) (job uint32, restart int, ok bool) {
	id, rest, _ := strings.Cut(strings.TrimSuffix(name, ".json"), ".")
	wide, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return 0, 0, false
	}
	if restart, err = strconv.Atoi(rest); err != nil || restart < 0 {
		return 0, 0, false
	}
	job = uint32(wide)
	return job, restart, name == fileName(job, restart) // no sign, no leading zero
}

// FileName is the name of the record's file, another one for each run of a job.
func (r Record) FileName() string { return fileName(r.Job, r.Restart) }

// Write puts a record into the spool, whole or not at all. A record of the same run that waits there
// already is replaced; one that has been reported is not: a second epilog of a run changes nothing.
// The record's Version is set here.
func Write(spool rundir.Spool, rec Record) error {
	name := rec.FileName()
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
	data, err := encode(rec)
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
	rec, err := decode(data)
	if err != nil {
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
		if name[0] == '.' { // the lock, and renameio's temporary files
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

func sortByEnd(records []Record) {
	slices.SortFunc(records, func(a, b Record) int {
		if c := a.End.Compare(b.End); c != 0 {
			return c
		}
		return int(a.Job) - int(b.Job)
	})
}

// AtWork says whether a process has the spool's lock. It will see what is in the spool by now: a reporter looks once
// more when it has given the lock back, and a process that took the lock to ask this starts a reporter afterwards.
func AtWork(spool rundir.Spool) (bool, error) { return trusted.IsLocked(spool.Lock()) }

// Lock takes the spool's lock, for the one that carries its records away; unlock is nil if another has it.
func Lock(spool rundir.Spool) (unlock func(), err error) {
	if err := os.MkdirAll(spool.Usage(), 0o700); err != nil {
		return nil, fmt.Errorf("lock usage spool: %w", err)
	}
	file, err := trusted.TryLock(spool.Lock())
	if err != nil || file == nil {
		return nil, err
	}
	return func() { file.Close() }, nil
}
