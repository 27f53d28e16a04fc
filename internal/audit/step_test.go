// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// What runs a step must go on while the step is frozen, whatever a distribution calls it.
func TestSlurmstepdIsRootsByItsProgram(t *testing.T) {
	a, p := node(t)
	for pid, is := range map[int]struct {
		program string
		uid     uint32
		stepd   bool
	}{
		10: {"/usr/sbin/slurmstepd", 0, true},
		11: {"/usr/sbin/slurmstepd-wlm", 0, true}, // Debian's, behind an alternative
		12: {"/usr/sbin/slurmstepd (deleted)", 0, true},
		13: {"/usr/sbin/slurmstepd-wlm", 1000, false},
		14: {"/usr/bin/sleep", 0, false},
		15: {"/usr/bin/slurmstepdx", 0, false},
	} {
		p.process(pid, is.uid)
		if err := os.Symlink(is.program, filepath.Join(p.dir, strconv.Itoa(pid), "exe")); err != nil {
			t.Fatal(err)
		}
		if a.IsStepd(pid) != is.stepd {
			t.Errorf("%s of uid %d: %v", is.program, is.uid, !is.stepd)
		}
	}
}
