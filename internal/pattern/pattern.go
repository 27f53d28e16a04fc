// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package pattern has regular expressions that are compiled when they are first used. The programs here live for milliseconds, and each of
// them needs few of those that are linked into it.
package pattern

import (
	"regexp"
	"sync"
)

// Late is such an expression. Its first use panics where it does not compile.
func Late(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
