// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each alert fires for its reason alone: a real Prometheus' tool evaluates them over series.
func TestAlertsFireForTheirReasons(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool (apt-get install prometheus)")
	}
	rules, err := filepath.Abs("prometheus/slurm-vgpu.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "check", "rules", rules).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cases, err := os.ReadFile("testdata/rules_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cases.yml")
	if err := os.WriteFile(path, []byte(strings.Replace(string(cases), "RULES", rules, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "test", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// The person who is woken finds the way on behind the alert's own link, also where all he has is the package.
func TestEachAlertHasItsRunbook(t *testing.T) {
	rules, err := os.ReadFile("prometheus/slurm-vgpu.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile("../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, rule := range strings.Split(string(rules), "- alert: ")[1:] {
		alert, _, _ := strings.Cut(rule, "\n")
		named++
		if !strings.Contains(rule, "docs/alerts.md#"+strings.ToLower(alert)+"'") {
			t.Errorf("%s has no runbook_url of its own", alert)
		}
		_, section, found := strings.Cut(string(runbook), "\n## "+alert+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		if !found || !strings.Contains(section, "*Well again:*") {
			t.Errorf("docs/alerts.md does not say of %s what to do, and when it is well again", alert)
		}
	}
	headings := len(regexp.MustCompile(`(?m)^## `).FindAll(runbook, -1))
	if named < 10 || headings != named {
		t.Errorf("%d alerts, %d headings", named, headings)
	}
}
