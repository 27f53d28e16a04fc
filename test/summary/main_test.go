// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSuitesAreCounted(t *testing.T) {
	event := func(action, test, output string) string {
		return `{"Action":"` + action + `","Package":"p","Test":"` + test + `","Output":"` + output + `"}`
	}
	for _, tc := range []struct {
		name, script string
		want         tally
	}{
		{"counts itself", "echo '2 passed, 0 failed'; echo 'SKIP memory: no GPU'; echo '1 passed, 0 failed, 1 skipped'",
			tally{passed: 3, skipped: 1, skips: []string{"s: memory: no GPU"}}},
		{"names its skips only", "echo 'SKIP a: no GPU'; echo '2 passed, 0 failed'", tally{passed: 2, skipped: 1, skips: []string{"s: a: no GPU"}}},
		{"tells the reason first", "echo '  skipped: no GPU'; echo 'skip a'; echo '2 passed, 0 failed'", tally{passed: 2, skipped: 1, skips: []string{"s: a: no GPU"}}},
		{"counts nothing", "echo fine", tally{passed: 1}},
		{"fails silently", "exit 3", tally{failed: 1, failures: []string{"s: exit status 3"}}},
		{"counts a failure", "echo '1 passed, 2 failed'; exit 1",
			tally{passed: 1, failed: 2, failures: []string{"s: 1 passed, 2 failed"}}},
		{"names its failures", "echo 'ok a'; echo 'b.c:3: got 1'; echo 'FAIL b'; echo '  ended by signal 9'; echo '1 passed, 1 failed'; exit 1",
			tally{passed: 1, failed: 1, failures: []string{"s: b\n    b.c:3: got 1"}}},
		{"go", "cat <<'END'\n" + event("output", "A", `    a_test.go:1: no root\n`) + "\n" + event("skip", "A", "") + "\n" +
			event("pass", "B", "") + "\n" + event("fail", "C", "") + "\n" + event("fail", "", "") + "\nEND\nexit 1",
			tally{passed: 1, failed: 1, skipped: 1, failures: []string{"p.C"}, skips: []string{"p.A: a_test.go:1: no root"}}},
		{"a package that does not build", "echo '" + `{"Action":"fail","Package":"p"}` + "'; exit 1",
			tally{failed: 1, failures: []string{"p"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := run([]string{"sh", "-c", tc.script}, "s")
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(tally{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
