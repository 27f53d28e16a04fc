// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// TestAConfigurationThatIsNotBelieved changes nothing for jobs with and without slices: what it said before holds, and slurmd's log says why.
func TestAConfigurationThatIsNotBelieved(t *testing.T) {
	needStrict(t)
	begin(t)
	path := c.ConfigPath()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string, mode os.FileMode) {
		if err := os.WriteFile(path+".new", []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path+".new", mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		write(string(before), 0o644)
		batch(t, one, "", "true") // which keeps it
	})
	hard := string(before) + "user_namespaces: deny\nwithout_slice: mask\n"
	look := "nvidia-smi -L 2>&1 | grep -c GPU-; unshare -U true 2>&1; true"
	write(hard, 0o644)
	without, with := batch(t, one, "", look), batch(t, one, "--gres=vgpu:1 --vgpu-mem=3000", look)
	if !strings.HasPrefix(without, "0\n") || !strings.HasPrefix(with, "1\n") || !strings.Contains(without+with, "not permitted") {
		t.Fatalf("the configuration is not in effect: %s%s", without, with)
	}
	for name, broken := range map[string]func(){
		"writable by others": func() { write(hard, 0o664) },
		"a tab":              func() { write(hard+"\tplace: pack\n", 0o644) },
		"a wrong value":      func() { write(hard+"place: nowhere\n", 0o644) },
		"gone":               func() { os.Remove(path) },
	} {
		broken()
		if a, b := batch(t, one, "", look), batch(t, one, "--gres=vgpu:1 --vgpu-mem=3000", look); a != without || b != with {
			t.Errorf("%s: without a slice %s, with one %s", name, a, b)
		}
		log, err := os.ReadFile(c.Home.Path("log", "slurmd-n1.log"))
		if err != nil || !strings.Contains(string(log), "vgpu: the configuration cannot be used, the last good copy holds: "+path) {
			t.Errorf("%s: slurmd's log says nothing of it: %v", name, err)
		}
	}
}

// TestThePluginLooksElsewhere: a run_dir that is not the prolog's started jobs without limits.
func TestThePluginLooksElsewhere(t *testing.T) {
	begin(t)
	plugstack := c.Home.Path("etc", "plugstack.conf")
	before, err := os.ReadFile(plugstack)
	if err != nil {
		t.Fatal(err)
	}
	restore := script(t, plugstack, strings.Replace(string(before), "/run/%n", "/run/typo-%n", 1))
	job := strings.TrimSpace(ok(t, one, "sbatch --parsable --gres=vgpu:1 --vgpu-mem=3000 --wrap 'nvidia-smi -L > ran' -D "+openDir(t)).Stdout)
	until(t, "the node to be drained", 60*time.Second, func() error {
		if state := run(t, root, "sinfo -h -n n1 -o %T").Stdout; !strings.Contains(state, "drain") {
			return errors.New(state)
		}
		return nil
	})
	restore()
	ok(t, root, "scancel "+job+"; scontrol update nodename=n1 state=resume")
	if log, _ := os.ReadFile(c.Home.Path("log", "vgpu.log")); !strings.Contains(string(log), "run_dir is ") {
		t.Error("the prolog does not say why")
	}
	if now := state(t, job); now == "COMPLETED" {
		t.Error("the job has run")
	}
}

func TestBadConfigIsNamedAndHarmless(t *testing.T) {
	begin(t)
	batch(t, one, "", "true") // its prolog keeps the configuration that is right
	defer func() {
		c.ExtraConfig = ""
		if err := c.WriteConfig(); err != nil {
			t.Error(err)
		}
	}()
	for _, tc := range []struct{ text, key, accepted string }{
		{"isolaton: strict\n", "isolaton", "isolation"},
		{"report_to: nobody\n", "report_to", ""},
	} {
		c.ExtraConfig = tc.text
		if err := c.WriteConfig(); err != nil {
			t.Fatal(err)
		}
		for line, code := range map[string]int{tool("n1", "status"): 0, "vgpuctl --config " + c.ConfigPath() + " config": 78,
			"vgpu-gres --config " + c.ConfigPath() + " gres.conf": 78} {
			result := run(t, root, line)
			if result.Code != code || !strings.Contains(result.Stderr, c.ConfigPath()) || !strings.Contains(result.Stderr, tc.key) ||
				!strings.Contains(result.Stderr, tc.accepted) {
				t.Errorf("want exit %d and file, key and accepted values named: %s", code, result)
			}
		}
		if out := strings.TrimSpace(ok(t, one, "srun --gres=vgpu:1 --vgpu-mem=3000 "+seen).Stdout); out != "3000" {
			t.Errorf("a job with %q in config.yaml sees %s", tc.text, out)
		}
	}
}
