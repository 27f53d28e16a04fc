// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/report"
)

// row is a run in the accounting database.
type row struct {
	job, state, nodes string
	vgpu              bool // it was allocated slices
	nodesInReport     []string
	reported, refused bool
}

// jobs are the raw ids of the jobs of this phase. By time sacct does not find a run whose start slurmctld did not
// tell (one of 1,187; 22.05.8), but by the job's id.
func (s *soak) jobs(ctx context.Context, runs []ran) ([]string, error) {
	result := s.cluster.Run(ctx, s.cluster.Root(), "sacct -a -D -X -n -P -S "+s.began.UTC().Format("2006-01-02T15:04:05")+" -o JobIDRaw")
	if result.Code != 0 {
		return nil, fmt.Errorf("%s", result)
	}
	ids := strings.Fields(result.Stdout)
	for _, r := range runs {
		ids = append(ids, r.job)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// jobsAtOnce is how many jobs sacct is asked for: their ids are one argument, which Linux bounds at 128 KiB.
const jobsAtOnce = 5000

// accounted are the rows of these jobs, each job's runs in their order.
func (s *soak) accounted(ctx context.Context, jobs []string) (map[string][]row, error) {
	const end = "\x1e"
	result := s.cluster.Run(ctx, s.cluster.Root(), "sacct -a -D -X -n -P --delimiter="+end+" -j "+strings.Join(jobs, ",")+
		" -o JobIDRaw,State,NodeList,AllocTRES,AdminComment")
	if result.Code != 0 {
		return nil, fmt.Errorf("%s", result)
	}
	rows := make(map[string][]row)
	for line := range strings.Lines(result.Stdout) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), end)
		if len(cells) != 5 {
			return nil, fmt.Errorf("sacct printed %q", line)
		}
		r := row{job: cells[0], state: cells[1], nodes: cells[2], vgpu: strings.Contains(cells[3], "gres/vgpu=")}
		// A run whose prolog was killed behind telling that the job waits has that text alone.
		if text := cells[4]; text != "" && !strings.HasPrefix(text, "vgpu: waits: ") {
			comment, err := report.ParseComment(text)
			if err != nil {
				return nil, fmt.Errorf("AdminComment of job %s: %w: %s", r.job, err, text)
			}
			r.nodesInReport = append(slices.Sorted(maps.Keys(comment.Nodes)), slices.Sorted(maps.Keys(comment.Refusals))...)
			r.reported, r.refused = len(r.nodesInReport) > 0, len(comment.Refusals) > 0
		}
		rows[r.job] = append(rows[r.job], r)
	}
	return rows, nil
}

// ran is what a run left in its file.
type ran struct {
	job          string
	restart      int
	node         string
	begun, ended int
}

func (r ran) String() string { return fmt.Sprintf("%s.%d", r.job, r.restart) }

func (s *soak) ran() (runs []ran, err error) {
	files, err := os.ReadDir(s.runs)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		path := filepath.Join(s.runs, file.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		r := ran{begun: strings.Count(string(text), "begin "), ended: strings.Count(string(text), "end\n")}
		job, restart, _ := strings.Cut(file.Name(), ".")
		r.job = job
		if r.restart, err = strconv.Atoi(restart); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if words := strings.Fields(string(text)); len(words) > 1 {
			r.node = words[1]
		}
		if r.begun > 0 { // or killed before it could say so
			runs = append(runs, r)
		}
		if err := os.Remove(path); err != nil { // the next phase has its own
			return nil, err
		}
	}
	return runs, nil
}

// judgeRuns holds what the runs left against what is accounted.
func (s *soak) judgeRuns(ctx context.Context, v *verdict, submitted int, byHand map[string]bool) error {
	runs, err := s.ran()
	if err != nil {
		return err
	}
	jobs, err := s.jobs(ctx, runs)
	if err != nil {
		return err
	}
	rows := make(map[string][]row)
	for some := range slices.Chunk(jobs, jobsAtOnce) {
		of, err := s.accounted(ctx, some)
		if err != nil {
			return err
		}
		maps.Copy(rows, of)
	}
	// Where nothing ran, nothing is left either.
	v.must("runs that began, for more than half of the jobs", fmt.Sprint(len(runs)), 2*len(runs) > submitted)
	judgeRows(v, rows)
	judgeBegun(v, rows, runs, byHand)
	return nil
}

func judgeRows(v *verdict, rows map[string][]row) {
	states := map[string]int{}
	var wrongNode, unreported []string
	all, refused := 0, 0
	for _, of := range rows {
		for i, r := range of {
			state, _, _ := strings.Cut(r.state, " ")
			states[state]++
			all++
			if r.refused {
				refused++
			}
			name := fmt.Sprintf("%s.%d(%s on %s)", r.job, i, state, r.nodes)
			if r.reported && (len(r.nodesInReport) != 1 || r.nodesInReport[0] != r.nodes) {
				wrongNode = append(wrongNode, fmt.Sprintf("%s reports %v", name, r.nodesInReport))
			}
			if r.vgpu && !r.reported && state == "COMPLETED" {
				unreported = append(unreported, name)
			}
		}
	}
	v.count("runs in the accounting database", all)
	for _, state := range slices.Sorted(maps.Keys(states)) {
		v.count("  "+state, states[state])
	}
	v.count("runs that were refused", refused)
	v.noneOf("reports in a row of another node", wrongNode)
	v.noneOf("completed runs without a report", unreported)
}

func judgeBegun(v *verdict, rows map[string][]row, runs []ran, byHand map[string]bool) {
	newest := make(map[string]int)
	for _, r := range runs {
		newest[r.job] = max(newest[r.job], r.restart)
	}
	var twice, again, refused, lost []string
	withSlices, once := 0, 0
	for _, r := range runs {
		if r.begun > 1 {
			twice = append(twice, r.String())
		}
		if r.ended > 0 && r.restart < newest[r.job] && !byHand[r.job] {
			again = append(again, r.String())
		}
		of := rows[r.job]
		if r.restart >= len(of) {
			lost = append(lost, r.String()+" has no row")
			continue
		}
		own := of[r.restart]
		if own.vgpu {
			withSlices++
		}
		switch {
		case own.nodes != r.node:
			lost = append(lost, fmt.Sprintf("%s ran on %s and is accounted on %s", r, r.node, own.nodes))
		case own.refused:
			refused = append(refused, fmt.Sprintf("%s on %s of %+v", r, r.node, of))
		case own.vgpu && !own.reported:
			lost = append(lost, fmt.Sprintf("%s (%s) has no report", r, own.state))
		case own.vgpu:
			once++
		}
	}
	v.count("runs with slices that began", withSlices)
	v.count("  accounted once, in their own row", once)
	v.noneOf("runs that began and are not", lost)
	v.noneOf("runs that were begun twice", twice)
	v.noneOf("runs that began although refused", refused)
	if v.chaos { // Slurm itself requeues a job whose slurmstepd was killed as it ended
		v.count("jobs run again after they had ended (Slurm's, after kill -9)", len(again))
	} else {
		v.noneOf("jobs run again after they had ended", again)
	}
}
