// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Names of the three GRES.
const (
	GRESSlices = "vgpu"
	GRESMem    = "gpumem"
	GRESCores  = "gpucores"
)

// Entitlement is what Slurm allocated to the job on this node: the job's totals there.
type Entitlement struct {
	Slices    int   `json:"vgpu"`
	MemMiB    int64 `json:"gpumem_mib"`
	SMPercent int   `json:"gpucores"`
}

// IsZero says that the job has no slice of any GPU on this node.
func (e Entitlement) IsZero() bool { return e == Entitlement{} }

// SliceCount is the number of slices: memory or cores without a count are one slice.
func (e Entitlement) SliceCount() int {
	if e.Slices == 0 && !e.IsZero() {
		return 1
	}
	return e.Slices
}

// PerSlice divides the totals evenly and rounds down. Cores never round down to 0, which would
// mean "no cap", and never exceed 100.
func (e Entitlement) PerSlice() (memMiB int64, smPercent int) {
	n := e.SliceCount()
	if n == 0 {
		return 0, 0
	}
	memMiB = e.MemMiB / int64(n)
	if e.SMPercent > 0 {
		smPercent = min(max(e.SMPercent/n, 1), 100)
	}
	return memMiB, smPercent
}

// Limits is what one slice of the job may use on a GPU of gpuMiB: what was asked for, but never
// more than the entitlement, whatever the request says. smPercent 0 is no cap. Cores without
// gpucores are 0 as well, since a share that Slurm did not count could be taken from a neighbour.
// memMiB is 0 only if the entitlement holds no memory for a slice. It may be more than the GPU has:
// the placement must then choose another GPU, not give less.
func Limits(r Request, e Entitlement, gpuMiB int64) (memMiB int64, smPercent int) {
	memMiB, smPercent = e.PerSlice()
	switch {
	case r.Mem.Percent > 0:
		memMiB = min(memMiB, r.Mem.OfGPU(gpuMiB))
	case r.Mem.MiB > 0:
		memMiB = min(memMiB, r.Mem.MiB)
	}
	if r.SMPercent > 0 {
		smPercent = min(smPercent, r.SMPercent)
	}
	return memMiB, smPercent
}

// OfGPU is the memory in MiB on a GPU of gpuMiB: percentages round down, but not to 0.
func (m Mem) OfGPU(gpuMiB int64) int64 {
	if m.Percent > 0 {
		return max(int64(math.Floor(m.Percent*float64(gpuMiB)/100)), 1)
	}
	return m.MiB
}

// Bounds of what ParseGRES reads.
const (
	maxGRESBytes = 64 << 10
	maxSlices    = 1 << 20
)

// ParseGRES reads a job's GRES as Slurm prints them for one node: "vgpu:1(CNT:1)",
// "gres:vgpu:2,gres:gpumem:6000", "gres/vgpu=2" or "vgpu(CNT:2),gpumem(CNT:3000)". Counts may end in
// K, M, G…, powers of 1024. Other GRES are skipped.
func ParseGRES(text string) (Entitlement, error) {
	var e Entitlement
	err := eachGRES(text, []string{GRESSlices, GRESMem, GRESCores}, func(g gres) error {
		n, err := parseCount(g.count, g.detail)
		if err == nil {
			err = e.add(g.name, n)
		}
		return err
	})
	if err != nil {
		return Entitlement{}, err
	}
	return e, nil
}

// gres is one item of a list of them.
type gres struct{ item, name, count, detail string }

// eachGRES hands over those of these names, in their order.
func eachGRES(text string, names []string, take func(gres) error) error {
	if len(text) > maxGRESBytes {
		return fmt.Errorf("read GRES of %d bytes: at most %d are expected", len(text), maxGRESBytes)
	}
	for text != "" {
		one := gres{item: text[:itemEnd(text)]}
		text = strings.TrimPrefix(text[len(one.item):], ",")
		one.name, one.count, one.detail = splitGRES(one.item)
		if !slices.Contains(names, one.name) {
			continue
		}
		if err := take(one); err != nil {
			return fmt.Errorf("read GRES %s: %w", shorten(one.item), err)
		}
	}
	return nil
}

// MemFirst says that memory stands before slices in a job's GRES. That is how job_submit marks that it was typed, so that
// VGPU_MEM=10%, which would otherwise still be seen here, is not to be looked at (gres/vgpu_parse.lua). A user who
// writes GRES in this order himself loses nothing but his own default.
func MemFirst(gres string) bool {
	before := false
	for gres != "" && len(gres) <= maxGRESBytes {
		item := gres[:itemEnd(gres)]
		gres = strings.TrimPrefix(gres[len(item):], ",")
		switch name, _, _ := splitGRES(item); name {
		case GRESMem:
			before = true
		case GRESSlices:
			return before
		}
	}
	return false
}

// itemEnd finds the comma after the first item: "gpu:2(IDX:0,3),vgpu:1" has commas in parentheses.
func itemEnd(text string) int {
	depth := 0
	for i := range len(text) {
		switch c := text[i]; {
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
		case c == ',' && depth == 0:
			return i
		}
	}
	return len(text)
}

// splitGRES takes "gres:name:type:count(detail)" apart; count and detail may be missing. A type is dropped.
func splitGRES(item string) (name, count, detail string) {
	item = strings.TrimSpace(item)
	item, detail, _ = strings.Cut(item, "(")
	detail = strings.TrimSuffix(detail, ")")
	for _, prefix := range []string{"gres:", "gres/"} {
		item = strings.TrimPrefix(item, prefix)
	}
	fields := strings.FieldsFunc(item, func(c rune) bool { return c == ':' || c == '=' })
	if len(fields) == 0 {
		return "", "", detail
	}
	if last := fields[len(fields)-1]; len(fields) > 1 && last[0] >= '0' && last[0] <= '9' {
		count = last
	}
	return fields[0], count, detail
}

// parseCount prefers the detail, which is of this node, to the count, which may be of all nodes.
func parseCount(count, detail string) (int64, error) {
	cnt, here := strings.CutPrefix(detail, "CNT:")
	if here {
		count = cnt
	} else if count == "" {
		return 1, nil // "vgpu" alone is one
	}
	number := strings.TrimRight(count, "KMGTPkmgtp")
	suffix := strings.ToUpper(count[len(number):])
	n, err := strconv.ParseInt(number, 10, 64)
	power := strings.Index("KMGTP", suffix) + 1
	if err != nil || n < 0 || len(suffix) > 1 {
		return 0, fmt.Errorf("count %q is no number", shorten(count))
	}
	if suffix == "" {
		power = 0
	}
	for ; power > 0 && n <= maxMiB; power-- {
		n *= 1024
	}
	if n > maxMiB {
		return 0, fmt.Errorf("count %s is larger than any node has", shorten(count))
	}
	return n, nil
}

func (e *Entitlement) add(name string, n int64) error {
	switch name {
	case GRESMem:
		if e.MemMiB+n > maxMiB {
			return fmt.Errorf("total is larger than any node has")
		}
		e.MemMiB += n
		return nil
	case GRESSlices:
		if int64(e.Slices)+n > maxSlices {
			return fmt.Errorf("total is larger than any node has")
		}
		e.Slices += int(n)
		return nil
	}
	if int64(e.SMPercent)+n > maxSlices {
		return fmt.Errorf("total is larger than any node has")
	}
	e.SMPercent += int(n)
	return nil
}
