// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// mounts are the mount points below the cluster's folder, but for the folder of each node's pages, which its first job makes and
// which stays.
func (s *soak) mounts() (points []string) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return []string{err.Error()}
	}
	for line := range strings.Lines(string(text)) {
		point := strings.Fields(line)[4]
		if inside, found := strings.CutPrefix(point, string(s.cluster.Home)+"/"); found && filepath.Base(inside) != rundir.PagesFolder {
			points = append(points, inside)
		}
	}
	return points
}

// daemons are what is there all the time; slurmd is its own child for the moment before it starts something. slurmctld has one that is
// called "slurmctld: slurmscriptd".
var daemons = []string{"munged", "mariadbd", "slurmdbd", "slurmctld", "slurmctld:", "slurmd", "vgpud", "simgpu-control"}

// processes are those of this cluster, but for its daemons and this program.
func (s *soak) processes() (left []string) {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		command := strings.ReplaceAll(strings.Trim(commandOf(folder), "\x00"), "\x00", " ")
		program, _, _ := strings.Cut(command, " ")
		if command == "" || filepath.Base(folder) == strconv.Itoa(os.Getpid()) || slices.Contains(daemons, filepath.Base(program)) || !s.isOurs(folder) {
			continue
		}
		left = append(left, filepath.Base(folder)+" "+command)
	}
	return left
}

var inUse = regexp.MustCompile(`GresUsed=(\S*)`)

// judgeRemains looks at all nodes when no job is left.
func (s *soak) judgeRemains(ctx context.Context, v *verdict, mountsBefore []string) {
	glob := func(elem ...string) (found []string) {
		for _, node := range s.cluster.Nodes {
			elem[1] = node
			names, _ := filepath.Glob(s.cluster.Home.Path(elem...))
			for _, name := range names {
				found = append(found, strings.TrimPrefix(name, string(s.cluster.Home)+"/"))
			}
		}
		return found
	}
	v.noneOf("job folders and marks left", glob("run", "", "jobs", "*"))
	v.noneOf("pages left", glob("run", "", rundir.PagesFolder, "[0-9]*"))
	v.noneOf("records left", append(glob("vgpu-spool", "", "usage", "*.json"), glob("vgpu-spool", "", "backfill", "*.json")...))
	v.noneOf("temporary files left", append(append(glob("run", "", ".*.json*"), glob("vgpu-spool", "", "usage", ".*.json*")...),
		glob("vgpu-spool", "", "history", ".*.json*")...))
	held := 0
	for _, node := range s.cluster.Nodes {
		slices, err := s.cluster.Slices(node)
		if err != nil {
			v.must("state of "+node, err.Error(), false)
		}
		held += len(slices)
	}
	v.none("slices left", held)
	used := inUse.FindAllStringSubmatch(s.cluster.Run(ctx, s.cluster.Root(), "scontrol -d show node").Stdout, -1)
	free := len(used) == len(s.cluster.Nodes)
	for _, of := range used {
		free = free && !regexp.MustCompile(`:[1-9]`).MatchString(of[1])
	}
	counted := fmt.Sprintf("nothing on %d nodes", len(used))
	if !free {
		counted = fmt.Sprint(used)
	}
	v.must("what Slurm counts as used", counted, free)
	v.noneOf("mounts left", slices.DeleteFunc(s.mounts(), func(point string) bool { return slices.Contains(mountsBefore, point) }))
	v.noneOf("processes left", s.processes())
	for _, node := range s.cluster.Nodes {
		result := s.cluster.Run(ctx, s.cluster.Root(), s.tool(node, "doctor"))
		lines := strings.Split(strings.TrimSpace(result.Stdout), "\n")
		v.must("doctor of "+node, lines[len(lines)-1], result.Code == 0)
		if result.Code != 0 {
			fmt.Fprintln(os.Stderr, "soak:", result)
		}
	}
}
