// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"os"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// counted JOB SECONDS FLAGS FROZEN AGO [SLICE-US [KILLED VERDICT]]: vgpud has counted so many seconds of it and was away for half of one, and
// looked at it the last time some seconds ago; 0: it looks, however long this machine takes to see it.
func writeCounts(ts *testscript.TestScript, args []string) error {
	n := [8]uint64{5: 2400}
	for i, arg := range args {
		var err error
		if n[i], err = strconv.ParseUint(arg, 10, 32); err != nil {
			return err
		}
	}
	dir, job := rundir.Dir(ts.MkAbs("run")), uint32(n[0])
	if err := ledger.CreateTime(dir.Time(job), job, 1); err != nil {
		return err
	}
	looked := uint64(ledger.TimeNow()) - n[4]*1e9
	if n[4] == 0 {
		looked = uint64(ledger.TimeNow() + time.Hour)
	}
	return putCount(dir, job, ledger.TimeDevice{BusyNs: n[1] * 1e9, UnknownNs: 5e8, LookedNs: looked, CreditNs: 2e8, SliceUs: uint32(n[5]),
		Percent: 3125, Frozen: uint32(n[3]), Flags: uint32(n[2]), Killed: uint32(n[6]), Verdict: uint32(n[7])})
}

// putCount makes the time page of a job's only slice say so.
func putCount(dir rundir.Dir, job uint32, counted ledger.TimeDevice) error {
	if err := ledger.CreateTime(dir.Time(job), job, 1); err != nil {
		return err
	}
	page, err := ledger.OpenTime(dir.Time(job), job)
	if err != nil {
		return err
	}
	defer page.Close()
	return page.Put([]ledger.TimeDevice{counted})
}

// scheduled JOB: a process of the job has written down a channel group.
func writeGroup(ts *testscript.TestScript, args []string) error {
	id, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil {
		return err
	}
	path, job := rundir.Dir(ts.MkAbs("run")).Groups(uint32(id)), uint32(id)
	if err := ledger.CreateGroups(path, job, uint32(os.Geteuid()), uint32(os.Getegid())); err != nil {
		return err
	}
	page, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer page.Close()
	// struct vgpu_groups_process behind the header: start_ticks, pidns; pid, count, more, sequence; of the group client, device, group, engine
	data := binary.LittleEndian.AppendUint64(make([]byte, 8), 42)
	for _, value := range []uint32{99, 1, 0, 2, 0xc1d0001e, 0x5c000001, 0x5c000010, 1} {
		data = binary.LittleEndian.AppendUint32(data, value)
	}
	_, err = page.WriteAt(append(data, make([]byte, 80)...), 32)
	return err
}
