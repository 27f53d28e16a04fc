// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
)

// maxDrainReason keeps a reason short enough for a column of sinfo -R.
const maxDrainReason = 200

// nodeState is the state of a node in scontrol's one line about it, and nodeReason what an administrator or a program gave for it:
// "Reason=TEXT [root@2026-11-27T04:35:08]" stands last, but for a comment.
var (
	nodeState  = pattern.Late(`^NodeName=(\S+) .*? State=(\S+)`)
	nodeReason = pattern.Late(` Reason=(.*) \[[^\[\]@ ]+@[0-9T:-]+\]`)
)

// NodeState reads in which states a node is, as IDLE and DRAIN, and why, in what `scontrol -o show node` prints.
func NodeState(text, node string) (states []string, reason string, err error) {
	state := nodeState().FindStringSubmatch(text)
	if state == nil || state[1] != node {
		return nil, "", errors.New("scontrol does not say in which state the node is")
	}
	if found := nodeReason().FindStringSubmatch(text); found != nil {
		reason = found[1]
	}
	return strings.Split(strings.TrimRight(state[2], "*~#!%$@^-"), "+"), reason, nil
}

// drained says of a node whether it drains, and why.
func (c Client) drained(ctx context.Context, node string) (drains bool, reason string, err error) {
	text, err := run(ctx, c.Scontrol, "-o", "show", "node", node)
	if err != nil {
		return false, "", err
	}
	states, reason, err := NodeState(text, node)
	return slices.Contains(states, "DRAIN"), reason, err
}

// Drain has a node take no more jobs. One that drains already is left alone; known: it does for this very reason.
func (c Client) Drain(ctx context.Context, node, reason string) (done, known bool, err error) {
	reason = DrainReason(reason)
	err = retry(ctx, c.Timeout, func(ctx context.Context) error {
		drains, now, err := c.drained(ctx, node)
		if known = drains && now == reason; err != nil || drains {
			return err
		}
		done = true
		_, err = run(ctx, c.Scontrol, "update", "NodeName="+node, "State=DRAIN", "Reason="+reason)
		return err
	})
	if err != nil {
		return false, false, fmt.Errorf("drain %s: %w", node, err)
	}
	return done, known, nil
}

// Resume undoes Drain if the reason is still the one that was given there. It asks once.
func (c Client) Resume(ctx context.Context, node, reason string) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	drains, now, err := c.drained(ctx, node)
	if err == nil && drains && now == DrainReason(reason) {
		_, err = run(ctx, c.Scontrol, "update", "NodeName="+node, "State=RESUME")
		done = err == nil
	}
	if err != nil {
		return false, fmt.Errorf("resume %s: %w", node, err)
	}
	return done, nil
}

// DrainReason is a reason as the controller keeps it and shows it again.
func DrainReason(reason string) string {
	reason = strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII || !unicode.IsPrint(r) || strings.ContainsRune(`"'[]`, r) {
			return '.'
		}
		return r
	}, reason)
	return strings.TrimSpace(reason[:min(len(reason), maxDrainReason)])
}
