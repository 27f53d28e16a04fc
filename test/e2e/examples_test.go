// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"path/filepath"
	"regexp"
	"testing"
)

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
	if result.Code != 0 {
		t.Errorf("%s\n%s", result, run(t, one, "cat examples/*/*.out").Output())
	}
	names, err := filepath.Glob(filepath.Join(source, "0*"))
	if told := regexp.MustCompile(`(?m)^(ok|skip) +0`).FindAllString(result.Stdout, -1); err != nil || len(told) != len(names) {
		t.Errorf("of %d examples it tells: %s", len(names), result)
	}
}
