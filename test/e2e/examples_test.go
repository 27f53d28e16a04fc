// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"testing"
)

const shareExample = "08-share"

var (
	failed    = regexp.MustCompile(`(?m)^FAIL +\d.*`)
	notWithin = regexp.MustCompile(`busy for ([\d.]+) % .*\nnot within \d+ and (\d+) %`)
)

// hadMore says whether a run of the example of shares had more than its share, as it told.
func hadMore(t *testing.T) bool {
	t.Helper()
	for _, told := range notWithin.FindAllStringSubmatch(run(t, one, "cat examples/"+shareExample+"/*.out").Stdout, -1) {
		var had, most float64
		fmt.Sscan(told[1], &had)
		fmt.Sscan(told[2], &most)
		if had > most {
			return true
		}
	}
	return false
}

// What stands in examples/ runs as it stands, and prints what it says.
func TestExamples(t *testing.T) {
	begin(t)
	source, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	ok(t, root, "cp -r "+source+" "+one.Home+" && chown -R "+one.Name+" "+filepath.Join(one.Home, "examples"))
	t.Cleanup(func() { run(t, root, "rm -rf "+filepath.Join(one.Home, "examples")) })
	result := run(t, one, "examples/check.sh")
	// This one tells what part of the time it had. Who is kept from a core of this machine has less, and is waited for; nobody ever
	// has more.
	for range 5 {
		fails := failed.FindAllString(result.Stdout, -1)
		if len(fails) != 1 || fails[0] != "FAIL  "+shareExample || hadMore(t) {
			break
		}
		if again := run(t, one, "examples/check.sh "+shareExample); again.Code == 0 {
			result.Code = 0
			result.Stdout = failed.ReplaceAllString(result.Stdout, "ok    "+shareExample)
		}
	}
	if result.Code != 0 || hadMore(t) {
		t.Errorf("%s\n%s", result, run(t, one, "cat examples/*/*.out").Output())
	}
	names, err := filepath.Glob(filepath.Join(source, "[0-9]*"))
	if told := regexp.MustCompile(`(?m)^(ok|skip) +\d`).FindAllString(result.Stdout, -1); err != nil || len(told) != len(names) {
		t.Errorf("of %d examples it tells: %s", len(names), result)
	}
}
