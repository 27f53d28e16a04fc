// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"testing"
	"time"
)

func TestReasonsAreSaidInWords(t *testing.T) {
	at := time.Date(2026, 3, 4, 15, 6, 0, 0, time.Local)
	for reason, want := range map[string]string{
		"":                                    "Slurm gives no reason",
		"Resources":                           "none of its nodes has free room for its request now (Resources)",
		"BeginTime":                           "it is to start at 2026-03-04 15:06 or later (BeginTime)",
		"QOSMaxGRESPerUser":                   "a limit of its QOS is reached, of GPUs or slices for each user (QOSMaxGRESPerUser)",
		"QOSMinGRES":                          "it asks for less than a limit of its QOS wants, of GPUs or slices (QOSMinGRES)",
		"AssocGrpCPUMinutesLimit":             "a limit of its account or user is reached, of CPUs (AssocGrpCPUMinutesLimit)",
		"QOSGrpJobsLimit":                     "a limit of its QOS is reached, of jobs (QOSGrpJobsLimit)",
		"ReqNodeNotAvail, UnavailableNodes:n": "a node that it needs is down, drained or reserved (ReqNodeNotAvail, UnavailableNodes:n)",
		"(Priority)":                          "others go before it ((Priority))",
		"launch failed requeued held":         "Slurm's reason is launch failed requeued held",
	} {
		if got := (Standing{State: "PENDING", Reason: reason, Begins: at}).ReasonText(); got != want {
			t.Errorf("%q: %q, want %q", reason, got, want)
		}
	}
}
