// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"strconv"
	"strings"
)

// GRESGPU is Slurm's own GRES of whole GPUs.
const GRESGPU = "gpu"

// maxNumber bounds the number of a GPU in Slurm's words.
const maxNumber = 1023

// GPUs are whole GPUs that Slurm gave to a job on a node, or that a text asks for.
type GPUs struct {
	Count   int
	Types   []string // of those that have one, each once
	Numbers []int    // Slurm's own of them, which for File=/dev/nvidiaN are N; as many as Count, or none
}

// ParseGPUs reads whole GPUs as Slurm prints them for one node: "gpu:h200:2(IDX:0-1),vgpu:1(CNT:1)". Other GRES are skipped.
func ParseGPUs(text string) (GPUs, error) {
	var all GPUs
	if err := eachGRES(text, []string{GRESGPU}, func(g gres) error { return all.add(g.item, g.count, g.detail) }); err != nil {
		return GPUs{}, err
	}
	if len(all.Numbers) != all.Count {
		all.Numbers = nil
	}
	return all, nil
}

func (g *GPUs) add(item, count, detail string) error {
	n, err := parseCount(count, "")
	if err != nil {
		return err
	}
	if int64(g.Count)+n > maxNumber {
		return fmt.Errorf("total is larger than any node has")
	}
	g.Count += int(n)
	item, _, _ = strings.Cut(item, "(")
	for _, prefix := range []string{"gres:", "gres/"} {
		item = strings.TrimPrefix(strings.TrimSpace(item), prefix)
	}
	fields := strings.FieldsFunc(item, func(c rune) bool { return c == ':' || c == '=' })
	if len(fields) > 1 && fields[1] != count && n > 0 {
		g.Types = append(g.Types, fields[1])
	}
	list, here := strings.CutPrefix(detail, "IDX:")
	if !here || n == 0 {
		return nil
	}
	numbers, err := ParseNumbers(list)
	g.Numbers = append(g.Numbers, numbers...)
	return err
}

// ParseNumbers reads a list of GPUs as Slurm writes them: "0-2,5" in scontrol's words, "0,1,2,5" in the environment.
func ParseNumbers(list string) (numbers []int, err error) {
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, firstErr := strconv.Atoi(from)
		last, lastErr := strconv.Atoi(to)
		if firstErr != nil || lastErr != nil || first < 0 || last < first || last > maxNumber || len(numbers) > maxNumber {
			return nil, fmt.Errorf("%q is no list of GPUs", shorten(list))
		}
		for n := first; n <= last; n++ {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}
