// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
)

// Running is what slurmctld said of itself.
type Running struct {
	Err      error // why it said nothing
	Config   slurmconf.File
	NodeGRES string // Gres= of the node; "": slurmctld does not know the node, or it has none
	// NodeStates are those in which slurmctld has the node, as IDLE and DRAIN, and NodeReason says why; none: it does not know the node.
	NodeStates []string
	NodeReason string
}

// AskSlurm asks slurmctld for its settings and for the node.
func AskSlurm(ctx context.Context, scontrol, slurmConf, node string) *Running {
	text, err := say(ctx, scontrol, slurmConf, "show", "config")
	if err != nil {
		return &Running{Err: err}
	}
	running := &Running{Config: slurmconf.Running(text)}
	if text, err := say(ctx, scontrol, slurmConf, "-o", "show", "node", node); err == nil {
		for field := range strings.FieldsSeq(text) {
			if gres, is := strings.CutPrefix(field, "Gres="); is && gres != "(null)" {
				running.NodeGRES = gres
				break
			}
		}
		running.NodeStates, running.NodeReason, _ = slurm.NodeState(text, node)
	}
	return running
}

// AskAccounting asks slurmdbd, and the database behind it, for something.
func AskAccounting(ctx context.Context, sacctmgr, slurmConf string) error {
	_, err := say(ctx, sacctmgr, slurmConf, "-nP", "show", "cluster", "format=cluster")
	return err
}

// say is what a command of Slurm's prints.
func say(ctx context.Context, command, slurmConf string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF=" + slurmConf, "LC_ALL=C"}
	cmd.WaitDelay = time.Second
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(errs.String()), "\n")
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", fmt.Errorf("%s %s: %w: %s", command, strings.Join(args, " "), err, first)
	}
	return string(out), nil
}

// asked makes a check of settings twice, of the file and of what slurmctld runs with. Where they differ, both are said: Slurm knows
// better than this program how it reads its files, and the file is what the next start reads.
func (c *site) asked(check func()) {
	file := c.tried(c.file, check)
	if c.Running == nil || c.Running.Err != nil {
		c.Findings = append(c.Findings, file...)
		return
	}
	running := c.tried(c.Running.Config, check)
	fileBad, _ := Count(file)
	runningBad, _ := Count(running)
	switch {
	case fileBad == 0 && runningBad > 0:
		for _, finding := range running {
			if !finding.OK {
				finding.Remedy = "stop slurmctld, restart slurmd, start slurmctld: " + c.file.Path + " is right, and slurmctld still runs with what it read before"
				c.Findings = append(c.Findings, finding)
			}
		}
	case fileBad > 0 && runningBad == 0:
		for _, finding := range file {
			if finding.Warning = !finding.OK; finding.Warning {
				finding.Says += "; slurmctld runs with what is needed, until it reads that file"
				c.Findings = append(c.Findings, finding)
			}
		}
	default:
		c.Findings = append(c.Findings, file...)
	}
}

// tried are the findings of a check by some settings.
func (c *site) tried(settings slurmconf.File, check func()) []Finding {
	before, was := c.Findings, c.slurm
	c.Findings, c.slurm = nil, settings
	check()
	found := c.Findings
	c.Findings, c.slurm = before, was
	return found
}

// unasked says that slurmctld has not answered.
func (c *site) unasked() {
	if c.Running == nil {
		return
	}
	if c.Running.Err == nil {
		c.OK("slurmctld", "it answers; its settings are looked at with the files")
		return
	}
	const remedy = "systemctl status slurmctld on the controller, and its log"
	if c.Live {
		c.Bad("slurmctld", remedy, "it does not answer: %v", c.Running.Err)
		return
	}
	c.Warn("slurmctld", remedy, "it does not answer, and the files alone are looked at: %v", c.Running.Err)
}

// gresReason is the beginning of Slurm's own reason for a node whose slurmd has registered with other counts than slurm.conf has
// (gres.c, gres_node_config_validate and gres_node_config_unpack).
var gresReason = pattern.Late(`^gres/\S+ `)

// takesJobs says whether Slurm sends jobs to the node. A node whose slurmd registers while it has an older gres.conf than slurmctld drains,
// and goes on to drain when that is over.
func (c *site) takesJobs() {
	const check = "node state"
	if c.Running == nil || c.Running.NodeStates == nil {
		return
	}
	state, reason := strings.Join(c.Running.NodeStates, "+"), c.Running.NodeReason
	says := "Slurm sends no job to " + c.Node + " (" + state + ")"
	if reason != "" {
		says += ": " + reason
	}
	is := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(c.Running.NodeStates, name) })
	}
	resume := "scontrol update nodename=" + c.Node + " state=resume"
	switch {
	case is("INVALID_REG", "INVAL"), is("DRAIN", "DOWN") && gresReason().MatchString(reason):
		c.Bad(check, "restart slurmd there, then "+resume, "%s", says)
	case is("DRAIN", "DOWN", "FAIL"):
		c.Warn(check, resume+", when what it says is over", "%s", says)
	case is("NOT_RESPONDING", "NO_RESPOND"):
		c.Warn(check, "see that slurmd runs there and slurmctld reaches it", "%s: its slurmd does not answer", says)
	default:
		c.OK(check, "Slurm sends jobs to %s (%s)", c.Node, state)
	}
}
