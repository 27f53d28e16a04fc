// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package installed_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/installed"
)

// The test's own program, copied to where the programs are installed, says what it finds from there.
func TestMain(m *testing.M) {
	if names := os.Getenv("FIND"); names != "" {
		for name := range strings.FieldsSeq(names) {
			path, err := installed.Find(name)
			fmt.Println(name, path, err == nil)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Whichever program looks, in whichever prefix: it finds the others where `make install` puts them, as the Makefile says.
func TestProgramsFindEachOtherWhereTheyAreInstalled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"usr", "usr/local", "opt/vgpu"} {
		root := t.TempDir()
		out, err := exec.Command("make", "-s", "-n", "-C", "../..", "install", "DESTDIR="+root, "prefix=/"+prefix, "GO=true").CombinedOutput()
		if err != nil {
			t.Fatalf("make cannot say what it installs: %v: %.200s", err, out)
		}
		var all []string
		for entry := range strings.SplitSeq(string(out), "'") {
			fields := strings.Split(entry, "|")
			if len(fields) != 3 || !strings.HasPrefix(fields[1], "build/") || !strings.HasPrefix(fields[2], "/"+prefix) || strings.Contains(fields[2], "/share/") || strings.Contains(fields[2], "slurm-wlm") {
				continue
			}
			path := filepath.Join(root, fields[2])
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := exec.Command("cp", self, path).Run(); err != nil {
				t.Fatal(err)
			}
			all = append(all, path)
		}
		if len(all) < 8 {
			t.Fatalf("%s: only %v are installed", prefix, all)
		}
		var names []string
		for _, path := range all {
			names = append(names, filepath.Base(path))
		}
		for _, path := range all {
			command := exec.Command(path)
			command.Env = []string{"FIND=" + strings.Join(names, " ")}
			said, err := command.Output()
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(strings.TrimSpace(string(said)), "\n") {
				if line != names[i]+" "+all[i]+" true" {
					t.Errorf("%s finds %s, want %s", path, line, all[i])
				}
			}
		}
	}
}
