// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// mostStrays is for how many doctor has a line each.
const mostStrays = 8

// audit looks for use of GPUs that no ledger accounts for.
func (d *doctor) audit(ctx context.Context) {
	const check = "audit"
	if d.inventory == nil || os.Geteuid() != 0 {
		return // without an inventory, that is said; without root, nobody is told of others' processes
	}
	pace := audit.Usual
	pace.Apart = time.Second
	report, err := findStrays(ctx, d.config, pace)
	if err != nil {
		d.Warn(check, "see that NVML and scontrol answer", "the processes on the GPUs are not known: %v", err)
		return
	}
	for i, s := range report.Strays {
		if i == mostStrays {
			d.Bad(check, "vgpuctl audit", "%s more", plural(len(report.Strays)-i, "stray"))
			break
		}
		d.Bad(check, s.remedy(), "GPU %d: %s", s.Index, s.line())
	}
	if len(report.Strays) == 0 {
		d.OK(check, "no stray use of a GPU is known; %s", d.lastAudit())
	}
}

// line is a stray in one sentence.
func (s strayUse) line() string {
	held := "memory"
	if s.MiB != nil {
		held = fmt.Sprintf("%d MiB", *s.MiB)
	}
	if s.PID == 0 {
		return fmt.Sprintf("job %d of %s %s: %s", s.Job, s.User, s.Says, held)
	}
	return fmt.Sprintf("process %d (%s) of %s, with %s, %s", s.PID, s.Name, s.User, held, s.Says)
}

func (s strayUse) remedy() string {
	if s.Job == 0 {
		return "look at what it is: a user's process outside of a job is ended with kill; a service's user belongs into audit_ignore"
	}
	return fmt.Sprintf("look at what it is; scancel %d ends its job, and with audit: cancel that is done at once", s.Job)
}

// lastAudit says when vgpud looked last.
func (d *doctor) lastAudit() string {
	if d.config.Audit == config.AuditOff {
		return "audit: off, so vgpud does not look for any"
	}
	info, err := os.Stat(d.config.Run().Audited())
	if err != nil {
		return "vgpud has not looked yet"
	}
	last := trusted.Age(info.ModTime())
	if last == trusted.UnknownAge {
		return "the time of vgpud's last look lies ahead: was the clock set back?"
	}
	return "vgpud had it looked at last " + age(last) + " ago"
}
