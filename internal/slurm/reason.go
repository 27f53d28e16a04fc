// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"fmt"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// reasons are Slurm's words for why a job waits, in those of people (squeue(1), JOB REASON CODES).
var reasons = map[string]string{
	"None":                     "Slurm has not looked at it yet",
	"Priority":                 "others go before it",
	"Resources":                "none of its nodes has free room for its request now",
	"BeginTime":                "it is to start later",
	"Dependency":               "it waits for another job",
	"DependencyNeverSatisfied": "the job that it waits for will never end as it wants",
	"JobHeldUser":              "its user holds it (scontrol release)",
	"JobHeldAdmin":             "an administrator holds it",
	"JobArrayTaskLimit":        "as many tasks of its array run as its % allows",
	"Licenses":                 "its licenses are in use",
	"Reservation":              "it waits for its reservation",
	"ReqNodeNotAvail":          "a node that it needs is down, drained or reserved",
	"PartitionDown":            "its partition is down",
	"PartitionInactive":        "its partition starts no jobs",
	"PartitionNodeLimit":       "it asks for more nodes than its partition allows",
	"PartitionTimeLimit":       "it asks for more time than its partition allows",
	"BadConstraints":           "no node is as it asks for",
	"NodeDown":                 "a node that it needs is down",
	"Cleaning":                 "its run before this one is being ended",
}

// limitNames are the parts of reasons such as QOSMaxGRESPerUser and AssocGrpMemLimit that say whose limit it is.
var limitNames = []struct{ prefix, whose string }{{"QOS", "of its QOS"}, {"Assoc", "of its account or user"}}

// ReasonText is why a job waits, with Slurm's word for it.
func (s Standing) ReasonText() string {
	reason, _, _ := strings.Cut(s.Reason, " ") // "ReqNodeNotAvail, UnavailableNodes:n1"
	reason = strings.Trim(reason, "(),")
	words, known := reasons[reason]
	for _, limit := range limitNames {
		if !known && strings.HasPrefix(reason, limit.prefix) {
			words, known = limitText(reason, limit.whose), true
		}
	}
	switch {
	case reason == "":
		return "Slurm gives no reason"
	case !known:
		return "Slurm's reason is " + s.Reason
	case reason == "BeginTime" && !s.Begins.IsZero():
		words = "it is to start at " + s.Begins.Local().Format("2006-01-02 15:04") + " or later"
	}
	return words + " (" + s.Reason + ")"
}

// counted are what a limit is of, by the part of its name.
var counted = []struct{ part, words string }{{"GRES", "of GPUs or slices"}, {"CPU", "of CPUs"}, {"MEM", "of memory"}, {"NODE", "of nodes"}, {"WALL", "of time"},
	{"JOBS", "of jobs"}, {"SUBMIT", "of jobs"}}

// limitText says what kind of limit it is, where its name does.
func limitText(reason, whose string) string {
	text := "a limit " + whose + " is reached"
	if strings.HasPrefix(reason, "QOSMin") {
		text = "it asks for less than a limit " + whose + " wants"
	}
	for _, c := range counted {
		if strings.Contains(strings.ToUpper(reason), c.part) {
			text += ", " + c.words
			break
		}
	}
	for _, each := range []string{"User", "Account", "Job"} {
		if strings.Contains(reason, "Per"+each) {
			text += " for each " + strings.ToLower(each)
		}
	}
	return text
}

// Asked is what a job asked for on each node, and whether it asked for whole GPUs. The controller is asked once.
func (c Client) Asked(ctx context.Context, id uint32) (per request.Entitlement, gpus bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	asked, gpus, err := c.asked(ctx, id)
	if err != nil {
		return per, false, fmt.Errorf("ask what job %d asked for: %w", id, err)
	}
	return *asked, gpus, nil
}
