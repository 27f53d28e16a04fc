// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"strconv"
	"strings"
)

// GRESShard is Slurm's own GRES of parts of GPUs, of which each is one MiB here.
const GRESShard = "shard"

// ShardsOfGPU are the shards of one GPU.
type ShardsOfGPU struct{ Given, All int64 }

// Shards are what Slurm gave to a job on a node, or what a text asks for.
type Shards struct {
	Count int64
	GPUs  []ShardsOfGPU // every GPU of the node, in Slurm's order; none where the text does not say it
}

// ParseShards reads shards as Slurm prints them for one node: "shard:3000(3000/143771,0/143771)", which are those given and
// those that there are, GPU by GPU; and as they are asked for: "gres/shard:3000". Other GRES are skipped.
func ParseShards(text string) (Shards, error) {
	var all Shards
	if err := eachGRES(text, []string{GRESShard}, func(g gres) error { return all.add(g.count, g.detail) }); err != nil {
		return Shards{}, err
	}
	return all, nil
}

func (s *Shards) add(count, detail string) error {
	n, err := parseCount(count, "")
	if err != nil {
		return err
	}
	if s.Count+n > maxMiB {
		return fmt.Errorf("total is larger than any node has")
	}
	s.Count += n
	if detail == "" || n == 0 {
		return nil
	}
	var gpus []ShardsOfGPU
	sum := int64(0)
	for pair := range strings.SplitSeq(detail, ",") {
		given, total, found := strings.Cut(pair, "/")
		if given == "-" { // 26.05 says so of a GPU that was given out whole
			given = "0"
		}
		g, givenErr := strconv.ParseInt(given, 10, 64)
		a, allErr := strconv.ParseInt(total, 10, 64)
		if !found || givenErr != nil || allErr != nil || g < 0 || a < g || a > maxMiB || len(gpus) > maxNumber {
			return fmt.Errorf("%q are no shards of GPUs", shorten(detail))
		}
		gpus = append(gpus, ShardsOfGPU{Given: g, All: a})
		sum += g
	}
	if sum != n || s.GPUs != nil && len(s.GPUs) != len(gpus) {
		return fmt.Errorf("%q do not come to %d shards", shorten(detail), n)
	}
	for i := range s.GPUs { // of another type
		gpus[i].Given += s.GPUs[i].Given
		gpus[i].All = max(gpus[i].All, s.GPUs[i].All)
	}
	s.GPUs = gpus
	return nil
}

// Picked are the GPUs of which shards were given, in Slurm's numbers.
func (s Shards) Picked() (numbers []int) {
	for n, gpu := range s.GPUs {
		if gpu.Given > 0 {
			numbers = append(numbers, n)
		}
	}
	return numbers
}
