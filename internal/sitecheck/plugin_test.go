// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// plugin compiles a shared library that has of a SPANK plugin what is looked at.
func plugin(t *testing.T, path string) {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("a plugin has to be compiled: %v", err)
	}
	source := filepath.Join(t.TempDir(), "plugin.c")
	write(t, source, "const char plugin_type[] = \"spank\";\nconst unsigned int plugin_version = 0x160508;\n")
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-o", path, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestPluginVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.so")
	plugin(t, path)
	if version, err := PluginVersion(path); err != nil || versionText(version) != "22.05.8" {
		t.Errorf("got %s, %v", versionText(version), err)
	}
	for _, other := range []string{"/bin/true", "/etc/passwd", "/does/not/exist"} {
		if version, err := PluginVersion(other); err == nil {
			t.Errorf("%s: %s", other, versionText(version))
		}
	}
}
