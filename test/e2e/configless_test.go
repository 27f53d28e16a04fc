// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// unconfigured runs a command line as on a node that has no files of Slurm's: what slurmd was sent is found in /run.
func unconfigured(line string) string { return "unset SLURM_CONF; " + line }

// configless lets the controller send its files and n1 ask for them.
func configless(t *testing.T) {
	t.Helper()
	if c.Home.InPlace() {
		t.Skip("there is no /run of the cluster's own here")
	}
	restart := func(start func(node string) error) {
		t.Helper()
		settle(t)
		for _, name := range []string{"n1", "slurmctld"} {
			if err := c.StopDaemon(name, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.StartDaemon("slurmctld"); err != nil {
			t.Fatal(err)
		}
		if err := start("n1"); err != nil {
			t.Fatal(err)
		}
		if err := c.AwaitIdle(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // after the files are as they were
		restart(c.StartDaemon)
		_ = os.RemoveAll("/run/slurm")
	})
	// A path in it would be one of the node's, which is not asked for anywhere.
	named := regexp.MustCompile(`(?m)^PlugStackConfig=.*\n`)
	replaced(t, c.Home.Path("etc", "slurm.conf"), func(text string) string {
		return named.ReplaceAllString(text, "") + "SlurmctldParameters=enable_configless\n"
	})
	restart(c.StartConfigless)
}

// TestAConfiglessNode has what it needs from the controller and from its own packages, and all that ever checks it looks there. What
// plugstack.conf includes is the node's own: without it the plugin is not there, the checks tell, and the node starts no job with slices.
func TestAConfiglessNode(t *testing.T) {
	begin(t)
	configless(t)
	for _, name := range []string{"slurm.conf", "gres.conf", "plugstack.conf", "cli_filter.lua"} {
		if _, err := os.Stat(filepath.Join(sentFiles, name)); err != nil {
			t.Errorf("it is not sent: %v", err)
		}
	}
	t.Run("the line", jobsWithoutConfig)
	line, err := os.ReadFile(c.Home.Path("etc", "plugstack.conf"))
	if err != nil {
		t.Fatal(err)
	}
	folder := openDir(t)
	beside := c.Home.Path("etc", filepath.Base(folder))
	t.Cleanup(func() { _ = os.RemoveAll(beside) })
	for _, dir := range []string{folder, beside} {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "vgpu.conf"), line, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	adjacent := c.Home.Path("etc", "vgpu-sent.conf")
	t.Cleanup(func() { _ = os.Remove(adjacent) })
	if err := os.WriteFile(adjacent, line, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		include string
		held    string // "": it depends on Slurm's release
	}{
		"the node's files":             {folder + "/*.conf", "yes"},
		"files in a folder":            {filepath.Base(beside) + "/*.conf", "no"},
		"a file beside plugstack.conf": {"vgpu-sent.conf", ""},
	} {
		t.Run(name, func(t *testing.T) {
			sends(t, "include "+tc.include+"\n")
			out, found := seenWithoutConfig(t), wrongWithoutConfig(t)
			t.Logf("a job of 3000 MiB sees %q, and the checks say %q", out, found)
			const why = "it came from the controller, without what it includes -> on the controller: plugstack.conf: required "
			switch held := out == "3000"; {
			case held && (tc.held == "no" || len(found) > 0):
				t.Error("it is held, and should not be, or the checks are wrong")
			case !held && (tc.held == "yes" || len(found) != 2 || !strings.Contains(found[0], why) || !strings.Contains(found[1], why)):
				t.Error("it is not held, and should be, or the checks are wrong")
			case !held && out != "":
				t.Error("a job ran that nothing held")
			}
		})
	}
}

// sentFiles is where the node has what it was sent.
const sentFiles = "/run/slurm/conf"

// sends has the controller send another plugstack.conf, for this test.
func sends(t *testing.T, plugstack string) {
	t.Helper()
	replaced(t, c.Home.Path("etc", "plugstack.conf"), func(string) string { return plugstack })
	ok(t, root, "scontrol reconfigure")
	until(t, "the node to have it", 30*time.Second, func() error {
		text, err := os.ReadFile(filepath.Join(sentFiles, "plugstack.conf"))
		if err == nil && string(text) != plugstack {
			err = fmt.Errorf("it has %q", text)
		}
		return err
	})
	if err := c.AwaitIdle(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// seenWithoutConfig is what a job of 3000 MiB sees; "": it did not start, and the node takes no more.
func seenWithoutConfig(t *testing.T) string {
	t.Helper()
	job := strings.TrimSpace(ok(t, one, unconfigured("sbatch --parsable -o seen.out --gres=vgpu:1,gpumem:3000 --wrap '"+seen+"'")).Stdout)
	ended := ""
	until(t, "the job to end, or its node to be drained", 60*time.Second, func() error {
		ended = strings.TrimSpace(run(t, root, "squeue -h -o %T -j "+job).Stdout)
		if drained := strings.Contains(run(t, root, "sinfo -h -n n1 -o %T").Stdout, "drain"); ended != "" && !drained {
			return fmt.Errorf("it is %s", ended)
		}
		return nil
	})
	if ended != "" {
		ok(t, root, "scancel "+job+" && scontrol update nodename=n1 state=resume")
	}
	if err := c.AwaitIdle(context.Background()); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(ok(t, one, "touch seen.out; cat seen.out; rm seen.out").Stdout)
}

// jobsWithoutConfig are of a user who has no files of Slurm's either.
func jobsWithoutConfig(t *testing.T) {
	if out := ok(t, one, unconfigured("srun --gres=vgpu:1 --vgpu-mem=3000 "+seen)).Stdout; strings.TrimSpace(out) != "3000" {
		t.Errorf("a job with options sees %s", out)
	}
	result := ok(t, one, unconfigured("sbatch --wait -o configless.out --gres=vgpu:1,gpumem:3000,gpucores:30 --wrap '"+seen+"; srun --gres=gpumem:1000 "+seen+"; vgpu-fill'; cat configless.out"))
	out := retried.ReplaceAllString(result.Stdout, "")
	if !strings.Contains(out, "\n3000\n1000\n") {
		t.Errorf("a job with GRES sees %s", out)
	}
	wantLimit(t, out, 3000)
	job := submitted.FindStringSubmatch(result.Stdout)[1]
	if slices := awaitUsage(t, job, 60*time.Second).VGPU.Nodes["n1"]; len(slices) != 1 || slices[0].PeakMiB == 0 {
		t.Errorf("its record is %+v", slices)
	}
	if refused := run(t, one, unconfigured("srun --gres=vgpu:1 --vgpu-mem=200000 true")); refused.Code == 0 || len(complaints(refused.Stderr)) == 0 {
		t.Errorf("%s", refused)
	}
	if found := wrongWithoutConfig(t); len(found) > 0 {
		t.Errorf("the checks say %q", found)
	}
}

// wrongWithoutConfig is what vgpu-gres check and vgpuctl doctor find when no variable names a file of Slurm's.
func wrongWithoutConfig(t *testing.T) (found []string) {
	t.Helper()
	check, doctor := run(t, root, unconfigured("vgpu-gres --node n1 check -v")), run(t, root, unconfigured(tool("n1", "doctor")))
	for _, said := range []string{check.Stdout, doctor.Stdout} {
		if !strings.Contains(said, sentFiles+"/gres.conf counts ") {
			t.Errorf("other files were looked at: %s", said)
		}
		for line := range strings.Lines(said) {
			// Whether this machine's own MariaDB is set up as Slurm wants it is another matter.
			warning := strings.Contains(line, ": warning: ") || strings.HasPrefix(line, "warn  ")
			if strings.Contains(line, " -> ") && !strings.Contains(line, "database: ") && !warning {
				found = append(found, strings.TrimSpace(line))
			}
		}
	}
	return found
}
