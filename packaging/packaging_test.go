// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package packaging holds no code: its test keeps what is shipped and documented in step with the
// programs.
package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/sitecheck"
)

// commentedKey is "#key:" or "#  key:" of config.yaml.example; prose has one blank after its sign.
var commentedKey = regexp.MustCompile(`^#((?:  )?[a-z_]+:.*)$`)

// uncommented is config.yaml.example with every key in force.
func uncommented(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("config.yaml.example")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if found := commentedKey.FindStringSubmatch(strings.TrimRight(line, "\n")); found != nil {
			lines = append(lines, found[1])
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestConfigExampleHasEveryKeyWithItsDefault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := uncommented(t)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config.Default().Effective(), got.Effective()); diff != "" {
		t.Errorf("config.yaml.example differs from the defaults (-default +example):\n%s", diff)
	}
	for _, key := range keys(t) {
		name := key[strings.LastIndex(key, ".")+1:]
		if !regexp.MustCompile(`(?m)^\s*` + name + `:`).MatchString(text) {
			t.Errorf("config.yaml.example lacks %s", key)
		}
	}
}

// keys are those that a configuration prints, with their sections.
func keys(t *testing.T) []string {
	t.Helper()
	var found []string
	section := ""
	for line := range strings.Lines(config.Default().Effective()) {
		name, value, isKey := strings.Cut(strings.TrimRight(line, "\n"), ":")
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "- "): // of a list
			found = append(found, section)
		case !isKey:
		case strings.HasPrefix(name, " "):
			found = append(found, section+"."+strings.TrimSpace(name))
		case value == "":
			section = name
		default:
			found = append(found, name)
		}
	}
	if len(found) < 20 {
		t.Fatalf("only %d keys found: %v", len(found), found)
	}
	return found
}

func TestManPageHasEveryKey(t *testing.T) {
	page, err := os.ReadFile("../docs/man/slurm-vgpu-config.yaml.5")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys(t) {
		if !strings.Contains(string(page), "\n.BR "+key+" ") {
			t.Errorf("slurm-vgpu-config.yaml(5) has no entry for %s", key)
		}
	}
}

// What lies only on an installed node cannot be found in a checkout.
var installed = map[string]bool{"Prolog": true, "Epilog": true, "plugstack": true}

func TestSiteExamplePassesTheCheck(t *testing.T) {
	cfg, err := config.Load("../examples/site/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	inventory := device.Inventory{Version: inventory.Version}
	for i := range 8 {
		inventory.GPUs = append(inventory.GPUs, device.GPU{Index: device.NVMLIndex(i), Type: "h200", MemMiB: 143771})
	}
	for _, node := range []string{"n1", "n2", "n3", "n4"} {
		site := sitecheck.Site{Node: node, SlurmConf: "../examples/site/slurm.conf", PlugstackConf: "../examples/site/plugstack.conf",
			Config: cfg, Inventory: &inventory}
		findings, err := site.Check()
		if err != nil {
			t.Fatal(err)
		}
		passed := 0
		for _, finding := range findings {
			if finding.OK {
				passed++
			} else if !finding.Warning && !installed[finding.Check] {
				t.Errorf("node %s: %s: %s -> %s", node, finding.Check, finding.Says, finding.Remedy)
			}
		}
		if passed < 8 {
			t.Errorf("node %s: only %d checks passed: %+v", node, passed, findings)
		}
	}
}

func TestVersionIsInTheChangelog(t *testing.T) {
	number, err := os.ReadFile("../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	changelog, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	heading := regexp.MustCompile(`(?m)^## ([^ \n]+) \((unreleased|20\d\d-\d\d-\d\d)\)$`)
	found := heading.FindStringSubmatch(string(changelog))
	if want := strings.TrimSpace(string(number)); found == nil || found[1] != want {
		t.Errorf("the first heading of CHANGELOG.md is not that of %s: %q", want, found)
	}
}

// Without Slurm's folder of plugins it is not known for which Slurm a package is, and none is made.
func TestNoPackageForAnUnknownSlurm(t *testing.T) {
	for _, target := range []string{"packages", "install"} {
		out, err := exec.Command("make", "-C", "..", "--no-print-directory", target, "SLURM_PLUGINDIR=", "DESTDIR="+t.TempDir()).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "no folder of Slurm's plugins is here") {
			t.Errorf("make %s: %v: %s", target, err, out)
		}
	}
}

// A library that defines a name of a newer C library does not need that one: on EL8 its package was refused.
func TestAPackageAsksForWhatItsProgramsNeed(t *testing.T) {
	if _, err := os.Stat("../build/libslurm-vgpu.so"); err != nil {
		t.Skip("not built")
	}
	out, err := exec.Command("bash", "-c", `eval "$(sed -n '/^glibc() {/,/^}/p' packages/build.sh)"; glibc ../build/libslurm-vgpu.so`).Output()
	if got := strings.TrimSpace(string(out)); err != nil || got != "2.17" {
		t.Errorf("the library alone asks for glibc %q: %v", got, err)
	}
}

func TestOlderPackagesDoNotStay(t *testing.T) {
	out := t.TempDir()
	older := filepath.Join(out, "slurm-vgpu-plugin-smd99.11_0.0.1-1_amd64.deb")
	if err := os.WriteFile(older, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("packages/build.sh", "build", out)
	command.Env = append(os.Environ(), "SLURM_PLUGINDIR=/usr/lib64/slurm", "FORMATS=none", "SOURCE_DATE_EPOCH=1") // no format: it ends behind that
	said, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(said), "no format none") {
		t.Skipf("Slurm's headers are not here: %s", said)
	}
	if _, err := os.Stat(older); err == nil {
		t.Errorf("%s is still there", older)
	}
}
