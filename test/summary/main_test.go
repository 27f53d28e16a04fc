// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"strings"
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
		{"says much", "cat <<'END'\n" + event("output", "A", `1\n`) + strings.Repeat("\n"+event("output", "A", `2\n`), 40) + "\n" +
			event("output", "A", `3\n`) + "\n" + event("fail", "A", "") + "\nEND\nexit 1",
			tally{failed: 1, failures: []string{"p.A\n    1" + strings.Repeat("\n    2", 19) + "\n    [… 10 lines]" + strings.Repeat("\n    2", 11) + "\n    3"}}},
		{"a package that does not build", "echo '" + `{"Action":"fail","Package":"p"}` + "'; exit 1",
			tally{failed: 1, failures: []string{"p"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := run([]string{"sh", "-c", tc.script}, "s", io.Discard)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(tally{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Each of them passes only where it meets the others: a and b each other, a also d, which comes after c.
func TestSuitesRunBesideOthers(t *testing.T) {
	t.Chdir(t.TempDir())
	var out bytes.Buffer
	r := runner{out: &out, command: []string{"sh", "-c", `
		await() { for i in $(seq 1500); do [ ! -e $1 ] || return 0; sleep 0.02; done; return 1; }
		echo $0 says one
		case $0 in
		a) touch a; await b && await d && echo "1 passed, 0 failed" ;;
		b) touch b; await a && echo "2 passed, 0 failed" ;;
		c) chrt -p $$ | grep -q SCHED_IDLE && touch c && echo "4 passed, 0 failed" ;;
		d) [ -e c ] && touch d; echo "8 passed, 1 failed"; exit 1 ;;
		esac
		echo $0 says two`}}
	r.beside([]string{"a", "b"}, []string{"c", "d"})
	want := tally{passed: 15, failed: 1, failures: []string{"d: 8 passed, 1 failed"}}
	if diff := cmp.Diff(want, r.total, cmp.AllowUnexported(tally{})); diff != "" {
		t.Errorf("%s\n%s", diff, &out)
	}
	for suite, passed := range map[string]string{"a": "1 passed, 0 failed", "b": "2 passed, 0 failed", "c": "4 passed, 0 failed"} {
		whole := "==> S\nS says one\n" + passed + "\nS says two\n<== S: " + passed + ", 0 skipped in "
		if whole = strings.ReplaceAll(whole, "S", suite); !strings.Contains(out.String(), whole) {
			t.Errorf("what %s said is not in one piece:\n%s", suite, &out)
		}
	}
}

func TestListsOfSuites(t *testing.T) {
	got := split([]string{"make", "-s", "--", "a", "b", "--", "--", "c"})
	want := [][]string{{"make", "-s"}, {"a", "b"}, {}, {"c"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
