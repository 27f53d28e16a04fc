// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// Node has the controller's figures of a node with slices.
type Node struct {
	Name       string
	State      string // mixed, drained*, …
	Partitions []string
	Has, Used  request.Entitlement
}

// Pending is a job in the queue that asks for slices.
type Pending struct {
	Job        string // as squeue names it: an array once
	Partitions []string
}

// The queried fields, each followed by a bar. None is a user's text. NodeHost would be one for all nodes of a host.
const (
	nodeFields    = "NodeList:|,PartitionName:|,StateLong:|,Gres:|,GresUsed:|"
	pendingFields = "JobArrayID:|,Partition:|,tres-per-node:|,tres-per-job:|,tres-per-socket:|,tres-per-task:|"
)

// Nodes are those of the cluster that have slices, in the order of their names. Any user may ask.
func (c Client) Nodes(ctx context.Context) (nodes []Node, err error) {
	sinfo := filepath.Join(filepath.Dir(c.Squeue), "sinfo")
	err = retry(ctx, c.Timeout, func(ctx context.Context) error {
		text, err := run(ctx, sinfo, "--noheader", "--all", "--Node", "--Format="+nodeFields)
		if err == nil {
			nodes, err = parseNodes(text)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask for the nodes: %w", err)
	}
	return nodes, nil
}

// Pending are the jobs in the queue that ask for slices, as far as who asks may see them.
func (c Client) Pending(ctx context.Context) (jobs []Pending, err error) {
	err = retry(ctx, c.Timeout, func(ctx context.Context) error {
		text, err := run(ctx, c.Squeue, "--noheader", "--all", "--states=PENDING", "--Format="+pendingFields)
		if err == nil {
			jobs, err = parsePending(text)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask who waits: %w", err)
	}
	return jobs, nil
}

// errForm marks an answer that another try does not change.
var errForm = errors.New("that is not the form of an answer")

// cells parts a line of --Format with bars.
func cells(line, format string) ([]string, error) {
	line = strings.TrimRight(line, "\n")
	found := strings.Split(line, "|")
	if len(found) != strings.Count(format, "|")+1 || strings.TrimSpace(found[len(found)-1]) != "" {
		return nil, fmt.Errorf("%w: %w: %.200q", errRefused, errForm, line)
	}
	for i := range found {
		found[i] = Printable(strings.TrimSpace(found[i]))
	}
	return found, nil
}

// parseNodes merges the lines of a node, of which there is one for each of its partitions.
func parseNodes(text string) (nodes []Node, err error) {
	at := make(map[string]int)
	for line := range strings.Lines(text) {
		cell, err := cells(line, nodeFields)
		if err != nil {
			return nil, err
		}
		name, partition := cell[0], strings.TrimSuffix(cell[1], "*")
		if i, known := at[name]; known {
			if !slices.Contains(nodes[i].Partitions, partition) {
				nodes[i].Partitions = append(nodes[i].Partitions, partition)
			}
			continue
		}
		node := Node{Name: name, State: cell[2], Partitions: []string{partition}}
		var usedErr error
		node.Has, err = request.ParseGRES(cell[3])
		node.Used, usedErr = request.ParseGRES(cell[4])
		if err := errors.Join(err, usedErr); err != nil {
			return nil, fmt.Errorf("%w: node %s: %w", errRefused, name, err)
		}
		if node.Has.IsZero() {
			continue
		}
		at[name] = len(nodes)
		nodes = append(nodes, node)
	}
	slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes, nil
}

func parsePending(text string) (jobs []Pending, err error) {
	for line := range strings.Lines(text) {
		cell, err := cells(line, pendingFields)
		if err != nil {
			return nil, err
		}
		for _, asked := range cell[2 : len(cell)-1] {
			gres, err := request.ParseGRES(asked)
			if err != nil {
				return nil, fmt.Errorf("%w: job %s: %w", errRefused, cell[0], err)
			}
			if !gres.IsZero() {
				jobs = append(jobs, Pending{Job: cell[0], Partitions: strings.Split(cell[1], ",")})
				break
			}
		}
	}
	return jobs, nil
}
