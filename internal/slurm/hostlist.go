// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"fmt"
	"strconv"
	"strings"
)

// HostlistContains says whether a node is in a host list such as "n[08-10,12],r[1-2]c[0-3]". The
// list is not expanded: it may name a hundred thousand nodes.
func HostlistContains(list, node string) bool {
	depth, start := 0, 0
	for i := 0; i <= len(list); i++ {
		switch {
		case i == len(list) || list[i] == ',' && depth == 0:
			if node != "" && matches(list[start:i], node) {
				return true
			}
			start = i + 1
		case list[i] == '[':
			depth++
		case list[i] == ']':
			depth--
		}
	}
	return false
}

// matches says whether a name is one of a pattern's: literal text and bracketed number ranges.
func matches(pattern, name string) bool {
	literal, rest, bracket := strings.Cut(pattern, "[")
	if !bracket {
		return literal == name
	}
	name, ok := strings.CutPrefix(name, literal)
	ranges, rest, closed := strings.Cut(rest, "]")
	if !ok || !closed {
		return false
	}
	for r := range strings.SplitSeq(ranges, ",") {
		for digits := 1; digits <= len(name) && isDigit(name[digits-1]); digits++ {
			if inRange(r, name[:digits]) && matches(rest, name[digits:]) {
				return true
			}
		}
	}
	return false
}

// inRange says whether a number, as written, is in "8-12" or "08-12": padding is part of the name.
func inRange(r, number string) bool {
	low, high, isRange := strings.Cut(r, "-")
	if !isRange {
		return low == number
	}
	from, err1 := strconv.ParseUint(low, 10, 64)
	to, err2 := strconv.ParseUint(high, 10, 64)
	n, err3 := strconv.ParseUint(number, 10, 64)
	return err1 == nil && err2 == nil && err3 == nil && from <= n && n <= to &&
		len(low) <= 20 && fmt.Sprintf("%0*d", len(low), n) == number
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
