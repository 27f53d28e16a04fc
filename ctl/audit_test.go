// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// A user can start any number of processes, and none of them fills the node's log.
func TestOneAuditLogsSoMuchAndNoMore(t *testing.T) {
	for strays, want := range map[int]int{0: 0, mostLogged: mostLogged, mostLogged + 500: mostLogged + 1} {
		var out bytes.Buffer
		logStrays(hclog.New(&hclog.LoggerOptions{Output: &out}), make([]strayUse, strays))
		if lines := strings.Count(out.String(), "\n"); lines != want {
			t.Errorf("%d strays have %d lines, want %d", strays, lines, want)
		}
		if more := strings.Contains(out.String(), "strays=600"); more != (strays > mostLogged) {
			t.Errorf("%d strays: %s", strays, out.String())
		}
	}
}
