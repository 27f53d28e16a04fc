// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"os"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

// page is a job's time page.
type page struct {
	*ledger.TimePage
	is      os.FileInfo
	devices []ledger.TimeDevice
	changed bool
}

// pageOf opens a job's time page, or gives the one that is open.
func (k *keeper) pageOf(job uint32) (*page, error) {
	is, err := os.Lstat(k.Run.Time(job))
	if err != nil {
		return nil, err
	}
	if p := k.pages[job]; p != nil {
		if os.SameFile(p.is, is) {
			return p, nil
		}
		p.Close() // of an earlier run of the job
		delete(k.pages, job)
	}
	opened, err := ledger.OpenTime(k.Run.Time(job), job)
	if err != nil {
		return nil, err
	}
	p := &page{TimePage: opened, is: is, devices: append([]ledger.TimeDevice(nil), opened.Devices()...)}
	if !slices.ContainsFunc(k.frozen, func(f frozen) bool { return f.Job == job }) {
		p.thawed()
	}
	k.pages[job] = p
	return p, nil
}

// resume goes on from the page's figures. The slice's use since then, while vgpud was away, is unknown.
func (t *tenant) resume(was ledger.TimeDevice, began, now time.Duration) {
	t.account = share.Account{Busy: time.Duration(was.BusyNs), Unknown: time.Duration(was.UnknownNs), Looked: time.Duration(was.LookedNs),
		NotExact: was.Flags&ledger.TimeInexact != 0}
	switch {
	case was.LookedNs != 0 && was.Flags&ledger.TimeIdle == 0:
		t.account.Resume(now)
	case began != 0: // it is new, or had no work when it was looked at last, and has some now
		t.account.Looked = max(t.account.Looked, began)
		t.account.Resume(now)
	}
	t.account.Looked = now
	if was.Flags&ledger.TimeIdle == 0 {
		t.slice = time.Duration(was.SliceUs) * time.Microsecond
	}
	t.resumeCap(was, now)
	if t.bucket != nil && was.LookedNs != 0 {
		t.bucket.Resume(time.Duration(was.CreditNs))
	}
}

// say writes the slice's figures to the page.
func (t *tenant) say() {
	if t.page == nil || t.Place >= len(t.page.devices) {
		return
	}
	d := &t.page.devices[t.Place]
	was := *d
	d.BusyNs, d.UnknownNs, d.LookedNs = uint64(t.account.Busy), uint64(t.account.Unknown), uint64(t.account.Looked)
	d.SliceUs, d.Percent = uint32(t.slice/time.Microsecond), t.percent
	d.CreditNs, d.CreditAtNs = 0, 0
	switch {
	case t.bucket != nil:
		d.CreditNs = int64(t.bucket.Left)
	case t.capState.hold != nil:
		d.CreditNs, d.CreditAtNs = int64(t.capState.credit), uint64(t.capState.creditAt)
	}
	d.Flags &= ledger.TimeFrozen
	for flag, is := range map[uint32]bool{
		ledger.TimeIdle: !t.works() && !t.named, ledger.TimeUnnamed: t.hidden, ledger.TimeUncounted: t.uncounted, ledger.TimeInexact: t.account.NotExact,
	} {
		if is {
			d.Flags |= flag
		}
	}
	t.page.changed = t.page.changed || *d != was
}

// frozen is how often a step of the tenant's job was frozen.
func (t *tenant) frozen() int {
	if t.page == nil || t.Place >= len(t.page.devices) {
		return 0
	}
	return int(t.page.devices[t.Place].Frozen)
}

// killed is how often steps of the tenant's job were killed.
func (t *tenant) killed() int {
	if t.page == nil || t.Place >= len(t.page.devices) {
		return 0
	}
	return int(t.page.devices[t.Place].Killed)
}

// saw writes a verdict on a process to all pages of its job.
func (p *page) saw(verdict share.Verdict) {
	for i := range p.devices {
		if d := &p.devices[i]; d.Verdict != verdict.Number() {
			d.Verdict, p.changed = verdict.Number(), true
		}
	}
}

// killed counts a killed step for all slices of the job.
func (p *page) killed() {
	for i := range p.devices {
		p.devices[i].Killed++
	}
	p.changed = true
}

// froze counts a frozen step for all slices of the job.
func (p *page) froze(is bool) {
	for i := range p.devices {
		if is {
			p.devices[i].Frozen++
			p.devices[i].Flags |= ledger.TimeFrozen
		} else {
			p.devices[i].Flags &^= ledger.TimeFrozen
		}
	}
	p.changed = true
}

// thawed takes back a step that was frozen when vgpud died, and let go then: that was no whole time.
func (p *page) thawed() {
	for i := range p.devices {
		if d := &p.devices[i]; d.Flags&ledger.TimeFrozen != 0 {
			d.Flags &^= ledger.TimeFrozen
			d.Frozen -= min(1, d.Frozen)
			p.changed = true
		}
	}
}

// putPages writes changed figures.
func (k *keeper) putPages() {
	for job, p := range k.pages {
		if !p.changed {
			continue
		}
		p.changed = false
		if err := p.Put(p.devices); err != nil {
			k.Log.Error("GPU time of a job is not written down", "job", job, "reason", err)
		}
	}
}
