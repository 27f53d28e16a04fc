// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
)

// Settings of systemd.exec(5) and systemd.resource-control(5) that would take away what a service is for.
var (
	closesDevices = []string{"PrivateDevices", "ProtectClock", "DevicePolicy", "DeviceAllow"} // ProtectClock: in systemd 247
	ownMounts     = []string{"ProtectSystem", "ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateMounts",
		"ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups", "ProtectProc", "TemporaryFileSystem", "BindPaths",
		"ProtectHostname", "PrivateNetwork"} // the last two in newer releases of systemd
	ownNetwork    = []string{"PrivateNetwork", "IPAddressDeny"}
	oldLibraries  = []string{"MemoryDenyWriteExecute"}
	loadsModules  = []string{"ProtectKernelModules", "ProtectKernelTunables", "RestrictSUIDSGID"}
	inEachService = []string{"CapabilityBoundingSet", "NoNewPrivileges", "RestrictNamespaces", "RestrictRealtime", "LockPersonality", "SystemCallArchitectures",
		"SystemCallFilter", "SystemCallErrorNumber", "RestrictAddressFamilies"}
)

// TestServicesAreBoundAndCanDoTheirWork: each has bounds, and none that its work does not go with.
func TestServicesAreBoundAndCanDoTheirWork(t *testing.T) {
	never := map[string][][]string{
		"textfile": {closesDevices, ownMounts, oldLibraries}, // jobs' pages, which are mounts, come and go while they run
		"exporter": {closesDevices, ownMounts, oldLibraries}, "inventory": {closesDevices, loadsModules, oldLibraries}, "devices": {closesDevices, ownMounts, loadsModules},
		"vgpud": {closesDevices, ownMounts, ownNetwork, oldLibraries},
	}
	units, err := filepath.Glob("systemd/*.service")
	if err != nil || len(units) != len(never) {
		t.Fatalf("%v, %v", units, err)
	}
	for _, path := range units {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "slurm-vgpu-"), ".service")
		forbidden, known := never[name]
		if !known {
			t.Errorf("nobody has said what %s must be able to do", path)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		has := func(key string) bool {
			return regexp.MustCompile(`(?m)^` + key + `=`).Match(text)
		}
		for _, key := range inEachService {
			if !has(key) {
				t.Errorf("%s: no %s=", path, key)
			}
		}
		for _, keys := range forbidden {
			for _, key := range keys {
				if has(key) {
					t.Errorf("%s: %s= takes away what it is for", path, key)
				}
			}
		}
	}
}

// TestVgpudCanDoAllItsWork: it, or what it runs from time to time, takes pages away, which are mounts, and their files their users'; and asks the controller.
func TestVgpudCanDoAllItsWork(t *testing.T) {
	text, err := os.ReadFile("systemd/slurm-vgpu-vgpud.service")
	if err != nil {
		t.Fatal(err)
	}
	for key, needs := range map[string][]string{"SystemCallFilter": {"@mount"}, "RestrictAddressFamilies": {"AF_UNIX", "AF_INET", "AF_INET6"},
		"CapabilityBoundingSet": {"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_SYS_ADMIN", "CAP_SYS_PTRACE"}} {
		_, has, _ := strings.Cut(string(text), "\n"+key+"=")
		has, _, _ = strings.Cut(has, "\n")
		for _, need := range needs {
			if !slices.Contains(strings.Fields(has), need) {
				t.Errorf("no %s in %s=", need, key)
			}
		}
	}
}

// TestServicesCanKeepTheConfiguration: each command of root's keeps a copy of the configuration that it believes, by which prologs go when the
// file is spoilt. A service that may not write it says so at each start.
func TestServicesCanKeepTheConfiguration(t *testing.T) {
	spool := filepath.Dir(config.LastGood(config.DefaultPath))
	text, err := os.ReadFile("systemd/slurm-vgpu-inventory.service")
	if err != nil {
		t.Fatal(err)
	}
	writes := regexp.MustCompile(`(?m)^ReadWritePaths=(.*)$`).FindSubmatch(text)
	if writes == nil || !slices.Contains(strings.Fields(string(writes[1])), "-"+spool) {
		t.Errorf("%s is read-only, and no copy of config.yaml can be kept there", spool)
	}
}

// TestNothingOfOldUnitsStays: those that vgpud and the exporter have replaced are stopped and forgotten by an upgrade.
func TestNothingOfOldUnitsStays(t *testing.T) {
	script, err := os.ReadFile("packages/postinstall.sh")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	wants := filepath.Join(root, "etc/systemd/system/timers.target.wants")
	said := filepath.Join(root, "said")
	if err := errors.Join(os.MkdirAll(wants, 0o755), os.MkdirAll(filepath.Join(root, "run/systemd/system"), 0o755), os.MkdirAll(filepath.Join(root, "bin"), 0o755),
		os.WriteFile(filepath.Join(root, "bin/systemctl"), fmt.Appendf(nil, "#!/bin/sh\necho \"$*\" >>%s\n", said), 0o755)); err != nil {
		t.Fatal(err)
	}
	links := []string{"slurm-vgpu-sweep.timer", "slurm-vgpu-metrics.socket", "slurm-vgpu-vgpud.service", "others.timer"}
	for _, name := range links {
		target := "/does/not/exist/" + name
		if name == "slurm-vgpu-vgpud.service" {
			target = said // which is there
		}
		if err := os.Symlink(target, filepath.Join(wants, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/etc/", "/run/systemd"} {
		script = bytes.ReplaceAll(script, []byte(path), []byte(root+path))
	}
	cmd := exec.Command("sh", "-s", "configure", "0.0.9")
	cmd.Stdin, cmd.Env = bytes.NewReader(script), []string{"PATH=" + filepath.Join(root, "bin") + ":/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "slurm-vgpu-exporter.socket") {
		t.Errorf("%v: %s", err, out)
	}
	left, err := filepath.Glob(wants + "/*")
	if err != nil || len(left) != 2 {
		t.Errorf("%v, %v", left, err)
	}
	text, err := os.ReadFile(said)
	for _, want := range []string{"slurm-vgpu-sweep.timer", "slurm-vgpu-audit.timer", "slurm-vgpu-metrics.socket", "try-restart slurm-vgpu-exporter.service", "daemon-reload"} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%v: no word of %s in %s", err, want, text)
		}
	}
}

// TestUnitsAreInstalledWhereSystemdLooks: what README has enabled after `make install` is found by systemctl, and starts programs of the same prefix.
func TestUnitsAreInstalledWhereSystemdLooks(t *testing.T) {
	for _, prefix := range []string{"/usr", "/usr/local"} {
		root := t.TempDir()
		out, err := exec.Command("make", "-s", "-C", "..", "-o", "build", "install", "DESTDIR="+root, "prefix="+prefix, "SLURM_PLUGINDIR=/plugins", "GO=true",
			"INSTALL="+installAnything(t)).CombinedOutput()
		if err != nil {
			t.Fatalf("make install: %v: %.500s", err, out)
		}
		units, err := filepath.Glob("systemd/*")
		if err != nil || len(units) == 0 {
			t.Fatal(units, err)
		}
		for _, unit := range units {
			text, err := os.ReadFile(filepath.Join(root, prefix, "lib/systemd/system", filepath.Base(unit)))
			if err != nil {
				t.Errorf("prefix %s: %v", prefix, err)
			}
			for _, start := range regexp.MustCompile(`(?m)^ExecStart=(\S*vgpu\S*)`).FindAllSubmatch(text, -1) {
				program := string(start[1])
				if _, err := os.Stat(filepath.Join(root, program)); err != nil || !strings.HasPrefix(program, prefix+"/") {
					t.Errorf("prefix %s: %s starts %s: %v", prefix, unit, program, err)
				}
			}
		}
	}
}

// TestWithoutGoNothingIsCompiled: what is missing is said first, with Debian's name for it.
func TestWithoutGoNothingIsCompiled(t *testing.T) {
	for _, goal := range []string{"packages", "build", "install"} {
		out, err := exec.Command("make", "-C", "..", "-n", goal, "GO=/does/not/exist/go", "BUILD="+t.TempDir(), "SLURM_PLUGINDIR=/plugins").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "golang-go") || strings.Contains(string(out), " -c ") {
			t.Errorf("make %s: %v: %.500s", goal, err, out)
		}
	}
}

// installAnything is an install(1) that puts an empty file where there is nothing built to put.
func installAnything(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "install")
	script := "#!/bin/sh\n[ -e \"$4\" ] || [ \"$1\" = -d ] || set -- \"$1\" \"$2\" \"$3\" /dev/null \"$5\"\nexec install \"$@\"\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
