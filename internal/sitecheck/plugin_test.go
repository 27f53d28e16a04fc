// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
	"github.com/slurm-vgpu/slurm-vgpu/internal/version"
)

// plugin compiles a shared library that has of a SPANK plugin what is looked at, and puts it in place of both parts.
func plugin(t *testing.T, dir string) {
	t.Helper()
	once.Do(func() {
		made := filepath.Join(t.TempDir(), "plugin.so")
		compile(t, made, "const char plugin_type[] = \"spank\";\nconst unsigned int plugin_version = 0x160508;\n")
		compiled, _ = os.ReadFile(made)
	})
	if compiled == nil {
		t.Skip("a plugin has to be compiled")
	}
	for _, name := range []string{slurmconf.PluginName, "spank_vgpu_launch-unknown.so"} {
		write(t, filepath.Join(dir, name), string(compiled))
	}
}

var (
	once     sync.Once
	compiled []byte
)

func compile(t *testing.T, path, text string) {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("a plugin has to be compiled: %v", err)
	}
	source := filepath.Join(t.TempDir(), "plugin.c")
	write(t, source, text)
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-o", path, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestRunningVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scontrol")
	for body, want := range map[string]string{
		`[ "$*" = --version ] && echo "slurm-wlm 22.05.8 of $SLURM_CONF"`: "22.05.8",
		`[ "$SLURM_CONF" = /x/slurm.conf ] && echo slurm 26.05.0rc1`:      "26.05.0",
		"echo slurm-wlm 22.05.8; exit 1":                                  "",
		"echo scontrol: fatal":                                            "",
	} {
		write(t, path, "#!/bin/sh\n"+body+"\n")
		if got := RunningVersion(t.Context(), path, "/x/slurm.conf"); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}

func TestPluginVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.so")
	const in = "__attribute__((used, aligned(4), section(\".%s\"))) const unsigned int %s = 0x%x;\n"
	for name, source := range map[string]string{
		"alone":                  "const unsigned int plugin_version = 0x160508;\n",
		"begins its section":     fmt.Sprintf(in, "one", "a", 1) + fmt.Sprintf(in, "two", "plugin_version", 0x160508) + fmt.Sprintf(in, "two", "b", 2),
		"ends its section":       fmt.Sprintf(in, "one", "a", 1) + fmt.Sprintf(in, "one", "plugin_version", 0x160508) + fmt.Sprintf(in, "two", "b", 2),
		"is among other numbers": fmt.Sprintf(in, "one", "a", 1) + fmt.Sprintf(in, "one", "plugin_version", 0x160508) + fmt.Sprintf(in, "one", "b", 2),
	} {
		compile(t, path, source)
		if version, err := PluginVersion(path); err != nil || versionText(version) != "22.05.8" {
			t.Errorf("it %s: got %s, %v", name, versionText(version), err)
		}
	}
	for _, other := range []string{"/bin/true", "/etc/passwd", "/does/not/exist"} {
		if version, err := PluginVersion(other); err == nil {
			t.Errorf("%s: %s", other, versionText(version))
		}
	}
}

func TestPluginOfAnotherRelease(t *testing.T) {
	site, dir := goodSite(t)
	path := filepath.Join(dir, "spank_vgpu.so")
	compile(t, path, `const char plugin_type[] = "spank"; const unsigned int plugin_version = 0x160508;
const char version[] __attribute__((section(".slurm_vgpu.version"))) = "slurm-vgpu 1.2.3";`)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "spank_vgpu_launch-1.2.3.so"), string(text))
	had := version.Number
	t.Cleanup(func() { version.Number = had })
	for number, want := range map[string][]string{
		"1.2.3":         {},
		version.Unknown: {},
		"1.2.4":         {"plugstack: DIR/spank_vgpu.so is of version 1.2.3, this program of 1.2.4 -> " + version.Remedy},
	} {
		version.Number = number
		if diff := cmp.Diff(want, findings(t, site, dir)); diff != "" {
			t.Errorf("%q: %s", number, diff)
		}
	}
}

func TestThePartThatThePluginLoads(t *testing.T) {
	had := version.Number
	t.Cleanup(func() { version.Number = had })
	for want, spoil := range map[string]func(path string) error{
		"DIR/plugstack.conf.d/vgpu.conf:2: stat PART: no such file or directory -> install spank_vgpu_launch-unknown.so there": os.Remove,
		fmt.Sprintf("PART belongs to uid %d with mode 0775; Slurm loads only what root alone may write -> chown root:root PART && chmod 755 PART", os.Getuid()): func(path string) error {
			return os.Chmod(path, 0o775)
		},
		"DIR/plugstack.conf.d/vgpu.conf:2: stat DIR/spank_vgpu_launch-1.2.4.so: no such file or directory -> install spank_vgpu_launch-1.2.4.so there": func(path string) error {
			version.Number = "1.2.4"
			compile(t, filepath.Join(filepath.Dir(path), "spank_vgpu.so"), `const char plugin_type[] = "spank"; const unsigned int plugin_version = 0x160508;
const char version[] __attribute__((section(".slurm_vgpu.version"))) = "slurm-vgpu 1.2.4";`)
			return nil
		},
	} {
		site, dir := goodSite(t)
		version.Number = had
		path := filepath.Join(dir, "spank_vgpu_launch-unknown.so")
		if err := spoil(path); err != nil {
			t.Fatal(err)
		}
		want = strings.ReplaceAll(want, "PART", "DIR/spank_vgpu_launch-unknown.so")
		if diff := cmp.Diff([]string{"plugstack: " + want}, findings(t, site, dir)); diff != "" {
			t.Error(diff)
		}
	}
}
