// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/gpu/gauge"
)

// rank is one process of an all-reduce.
type rank struct {
	cmd         *exec.Cmd
	board       gauge.Board
	handlesFile string
}

func (t *trial) startRank(i int) rank {
	var r rank
	var boardFile string
	r.board, boardFile, r.handlesFile = t.newBoard()
	r.cmd = exec.Command("python3", t.program("allreduce.py"), fmt.Sprint(i), boardFile)
	r.cmd.Env = append(t.watched(r.handlesFile), t.gpu.Visible()+","+t.other.UUID)
	r.cmd.Stdout, r.cmd.Stderr = os.Stdout, os.Stdout
	if err := r.cmd.Start(); err != nil {
		panic(fmt.Errorf("start a rank: %w", err))
	}
	return r
}

// nccl takes one rank's GPU away for a while.
func (t *trial) nccl() {
	t.needsTwo()
	ranks := []rank{t.startRank(0), t.startRank(1)}
	defer func() {
		for _, r := range ranks {
			r.cmd.Process.Kill()
			r.cmd.Wait()
		}
	}()
	for end := time.Now().Add(60 * time.Second); ranks[0].board.Get(gauge.Ready) == 0 || ranks[1].board.Get(gauge.Ready) == 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			panic(fmt.Errorf("the ranks did not get ready"))
		}
	}
	rate := func(seconds float64) float64 {
		before := ranks[0].board.Get(gauge.Done)
		time.Sleep(ofSeconds(seconds))
		return float64(ranks[0].board.Get(gauge.Done)-before) / seconds
	}
	p := newOwned(ranks[1].cmd.Process.Pid, readHandles(ranks[1].handlesFile))
	defer p.close()
	before := rate(1)
	off := p.off(true)
	whileOff := rate(3)
	on := p.off(false)
	t.row("one rank off", fmt.Sprintf("%d channels, status of off %#x, on %#x", len(p.channels), off, on),
		fmt.Sprintf("all-reduces a second %.0f, off %.0f, on %.0f", before, whileOff, rate(1)))
	for _, turnMS := range []int{10, 50} {
		end := meanwhile(func(int) {
			for _, off := range []bool{true, false} {
				p.off(off)
				time.Sleep(time.Duration(turnMS) * time.Millisecond)
			}
		})
		perSecond := rate(1.8)
		end()
		t.row(fmt.Sprintf("one rank off and on each %d ms", turnMS), fmt.Sprintf("all-reduces a second %.0f", perSecond))
	}
	for _, r := range ranks {
		r.board.Set(gauge.Stop)
	}
	time.Sleep(time.Second)
}
