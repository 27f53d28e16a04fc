// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"

	"github.com/slurm-vgpu/slurm-vgpu/test/gpu/gauge"
)

// nccl has one job with half of each of two GPUs: alone, beside a neighbour without a cap on each, held by a cap, and alone again.
func (t *trial) nccl() []trialCase {
	return []trialCase{{"two GPUs", func(t *trial) {
		if len(t.gpus) < 2 || t.simulated {
			panic(fmt.Errorf("two real GPUs are needed, and PyTorch"))
		}
		const elastic = " --vgpu-policy=elastic"
		t.measured("ms=2")
		alone := t.reduces(elastic)
		beside := t.reduces(elastic, want{load: "ms=2", options: "--gres=vgpu:1 --vgpu-place=spread"}, want{load: "ms=2", options: "--gres=vgpu:1 --vgpu-place=spread"})
		capped := t.reduces("")
		again := t.reduces(elastic)
		alone = (alone + again) / 2
		for _, c := range []struct {
			name string
			had  float64
		}{{"beside", beside}, {"with a cap", capped}} {
			t.row("two GPUs, half of each, "+c.name, verdict(c.had >= 0.95*0.5*alone), fmt.Sprintf("all-reduces a second: alone %.0f, %s %.0f: %.2f of alone, %.2f of its share", alone, c.name, c.had, c.had/alone, c.had/alone/0.5))
		}
	}}}
}

// reduces is of one job with half of each of two GPUs.
func (t *trial) reduces(policy string, neighbours ...want) float64 {
	defer t.cancelAll()
	j := &job{active: 2}
	script := "#!/bin/bash\nexport NCCL_NVLS_ENABLE=0\n"
	for rank := range 2 {
		board, name := t.newBoard(nil)
		j.boards = append(j.boards, board)
		script += fmt.Sprintf("%s %s %d %s &\n", t.python, filepath.Join(t.programs, "allreduce.py"), rank, name)
	}
	t.submitScript(j, "--gres=vgpu:2 --vgpu-mem=20% --vgpu-cores=50"+policy, script+"wait\n")
	t.ready(j)
	others := t.start(neighbours...)
	letGo(others...)
	t.pause(settling)
	before := j.boards[0].Get(gauge.Done)
	f := t.window(t.seconds, others...)
	return float64(j.boards[0].Get(gauge.Done)-before) / f.seconds
}
