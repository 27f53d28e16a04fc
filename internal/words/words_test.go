// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package words_test

import (
	"context"
	"os/exec"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/words"
)

// A program that says more than is kept ends all the same, as its pipe does not fill.
func TestTheFirstWordsAreKept(t *testing.T) {
	for most, over := range map[int]bool{8: true, 200000: false} {
		first := words.First{Most: most}
		cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", `echo " a  b"; echo c; head -c 150000 /dev/zero | tr '\0' ' '`)
		cmd.Stdout = &first
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		if first.Line() != "a b c" || first.Over() != over || len(first.Bytes()) != min(most, 150008) || first.String()[:6] != " a  b\n" {
			t.Errorf("%d bytes: %q, more: %v", most, first.Line(), first.Over())
		}
	}
}
