// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// Field is a column of the job table that takes a text, by sacct's name.
type Field string

// The columns that usage can go to.
const (
	FieldAdminComment Field = "AdminComment"
	FieldExtra        Field = "Extra"
)

// jobstatsPrefix begins the AdminComment of a job that jobstats has summed up. sacctmgr, by which jobstats writes
// it, may have made the letters small (22.05).
const jobstatsPrefix = "JS1:"

// DefaultAfter is how long after a job's end its AdminComment is left to the site's EpilogSlurmctld, where there
// is one: jobstats writes from there, some seconds after the end, whatever stands there already.
const DefaultAfter = 15 * time.Second

var (
	errEpilogSlurmctld = errors.New("EpilogSlurmctld may still write the admin comment")
	errJobstats        = errors.New("the admin comment is jobstats', and this release of Slurm has no field Extra")
	errNoExtra         = errors.New("accounting_field is extra, which Slurm has from 23.02 on")
)

// ofJobstats says whether an AdminComment is jobstats', which reads it by its beginning.
func ofJobstats(text string) bool {
	return len(text) >= len(jobstatsPrefix) && strings.EqualFold(text[:len(jobstatsPrefix)], jobstatsPrefix)
}

// text is what a field of the row holds.
func (r Row) text(field Field) string {
	if field == FieldExtra {
		return r.Extra
	}
	return r.AdminComment
}

func (r *Row) set(field Field, text string) {
	if field == FieldExtra {
		r.Extra = text
		return
	}
	r.AdminComment = text
}

// Comment finds our part in the row, fit to be printed, and the field that it is in. AdminComment goes first. A job's owner can fill
// Extra when he submits it, so it is read only where usage is written into it: where the site says so (its accounting_field), and of
// a job whose AdminComment is jobstats'.
func (r Row) Comment(accountingField string) (Comment, Field, error) {
	comment, err := ParseComment(r.AdminComment)
	if !errors.Is(err, ErrNoComment) || accountingField != config.FieldExtra && !ofJobstats(r.AdminComment) {
		return comment.printable(), FieldAdminComment, err
	}
	comment, err = ParseComment(r.Extra)
	comment.keepNodesOf(r)
	return comment.printable(), FieldExtra, err
}

// keepNodesOf drops what is of none of the run's nodes.
func (c Comment) keepNodesOf(row Row) {
	foreign := func(node string) bool { return !slurm.HostlistContains(row.NodeList, node) }
	maps.DeleteFunc(c.Nodes, func(node string, _ []CommentSlice) bool { return foreign(node) })
	maps.DeleteFunc(c.Refusals, func(node, _ string) bool { return foreign(node) })
}

// printable is the comment with texts that can be shown.
func (c Comment) printable() Comment {
	nodes, refusals := c.Nodes, c.Refusals
	c.Nodes, c.Refusals = make(map[string][]CommentSlice, len(nodes)), make(map[string]string, len(refusals))
	for node, slices := range nodes {
		for i := range slices {
			slices[i].GPU = device.UUID(slurm.Printable(string(slices[i].GPU)))
		}
		c.Nodes[slurm.Printable(node)] = slices
	}
	for node, why := range refusals {
		c.Refusals[slurm.Printable(node)] = slurm.Printable(why)
	}
	return c
}

// fieldFor is where the usage of a row's run goes: what the site says, but never over jobstats' text.
func (r *Reporter) fieldFor(row Row) (Field, error) {
	switch {
	case r.Field != config.FieldExtra && !ofJobstats(row.AdminComment):
		return FieldAdminComment, nil
	case row.HasExtra:
		return FieldExtra, nil
	case r.Field == config.FieldExtra:
		return "", errNoExtra
	}
	return "", errJobstats
}

// whyNot says why usage is not written to the database here; empty: it is.
func whyNot(cfg config.Config) string {
	switch {
	case !cfg.Report.Enabled:
		return "report.enabled is false"
	case cfg.AccountingField == config.FieldNone:
		return "accounting_field is none"
	}
	return ""
}

// Enabled is an error that names the key by which the site keeps usage out of the database, if one does.
func Enabled(cfg config.Config) error {
	if why := whyNot(cfg); why != "" {
		return fmt.Errorf("%s in the configuration", why)
	}
	return nil
}

// mergeExtra is Merge for a field that the job's owner could fill before: of our part, what is of none of the run's
// nodes goes, and what leaves no room for ours, or passes for a newer version's, goes altogether.
func mergeExtra(existing string, row Row, rec usage.Record) (string, error) {
	object, comment, err := parseComment(existing)
	switch {
	case errors.Is(err, ErrCommentVersion):
		existing = ""
	case err == nil:
		comment.keepNodesOf(row)
		part, err := marshal(comment)
		if err != nil {
			return "", fmt.Errorf("merge extra: %w", err)
		}
		object["vgpu"] = json.RawMessage(part)
		if existing, err = marshal(object); err != nil {
			return "", fmt.Errorf("merge extra: %w", err)
		}
	}
	text, err := Merge(existing, rec)
	if errors.Is(err, ErrCommentFull) {
		return Merge(ourPart(existing), rec)
	}
	return text, err
}

// ourPart is a text without what others have put beside our part.
func ourPart(text string) string {
	_, comment, err := parseComment(text)
	if err != nil {
		return ""
	}
	part, err := marshal(map[string]Comment{"vgpu": comment})
	if err != nil {
		return ""
	}
	return part
}
