// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// otherLayout makes of this build a later one, which knows a field more at the end of each page, and a figure of use more, by the lines that
// CONTRIBUTING.md asks for and no others.
var otherLayout = map[string][][2]string{
	"interposer/api/layout.h": {
		{"\tuint64_t ledger_inode;\n", "\tuint64_t ledger_inode;\n\tuint64_t later[16];\n"},
		{"\tuint64_t refusals[VGPU_MAX_DEVICES]\n", "\tuint64_t refusals[VGPU_MAX_DEVICES]; \\\n\tuint64_t made_up[VGPU_MAX_DEVICES]\n"},
		{"\tuint64_t context_bytes[VGPU_MAX_DEVICES];\n", "\tuint64_t context_bytes[VGPU_MAX_DEVICES];\n\tuint64_t later[1024];\n"},
		{"\tstruct vgpu_groups_process process[VGPU_MAX_PROCS];\n", "\tstruct vgpu_groups_process process[VGPU_MAX_PROCS];\n\tuint64_t later[1024];\n"},
		{"\tstruct vgpu_time_device device[VGPU_MAX_DEVICES];\n", "\tstruct vgpu_time_device device[VGPU_MAX_DEVICES];\n\tuint64_t later[1024];\n"},
	},
	"interposer/account/account.c": {{"\tSET(*of_job, ", "\tSET(vgpu_pages.ledger->made_up[device], 77);\n\tSET(vgpu_pages.ledger->step[p->step].made_up[device], 77);\n\tSET(*of_job, "}},
	"internal/usage/figures.go": {
		{"\tPeakMiB  *int64  `json:\"peak_mib\"`\n", "\tPeakMiB  *int64  `json:\"peak_mib\"`\n\tMadeUp *uint64 `json:\"made_up\"`\n"},
		{"Refusals: new(used.Refusals)", "Refusals: new(used.Refusals), MadeUp: new(used.MadeUp)"},
	},
}

// parts are the files of a build that an upgrade replaces.
var parts = []string{"vgpu-prolog", "vgpu-epilog", "vgpuctl", "spank_vgpu.so", "libslurm-vgpu.so",
	"libcuda-guard.so", "libnvidia-ml-guard.so", "libslurm-vgpu-closed.so"}

// buildOther builds the later one from a copy of the sources.
func buildOther(t *testing.T) string {
	t.Helper()
	tree := t.TempDir()
	copied := exec.Command("sh", "-c", `cd "$0" && tar --exclude=./build --exclude=./.git -cf - . | tar -C "$1" -xf -`, c.Source, tree)
	if out, err := copied.CombinedOutput(); err != nil {
		t.Fatalf("copy the sources: %v: %s", err, out)
	}
	for name, changes := range otherLayout {
		data, err := os.ReadFile(filepath.Join(tree, name))
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		for _, change := range changes {
			if !strings.Contains(text, change[0]) {
				t.Fatalf("%s has no %q", name, change[0])
			}
			text = strings.Replace(text, change[0], change[1], 1)
		}
		if err := os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(tree, "VERSION"), []byte("0.1.0-other\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"-C", tree, "-j2", "plugin"}
	for _, part := range parts {
		args = append(args, "build/"+part)
	}
	if out, err := exec.Command("make", "-C", tree, "generate").CombinedOutput(); err != nil {
		t.Fatalf("generate the later one: %v: %s", err, out)
	}
	if out, err := exec.Command("make", args...).CombinedOutput(); err != nil {
		t.Fatalf("build the later one: %v: %s", err, out[max(0, len(out)-2000):])
	}
	return filepath.Join(tree, "build")
}

// install puts a build into place as a package manager does: each file beside its place, then over it, and at last what is no part of it goes.
func install(t *testing.T, build string) {
	t.Helper()
	launch, err := cluster.LaunchPart(filepath.Dir(build))
	if err != nil {
		t.Fatal(err)
	}
	put := func(part string) {
		to := c.Home.Program(part)
		ok(t, root, fmt.Sprintf("cp %s %s.new && mv %s.new %s", filepath.Join(build, part), to, to, to))
	}
	for _, part := range parts {
		put(part)
	}
	put(launch)
	ok(t, root, "find "+c.Home.Path("lib")+" -name 'spank_vgpu_launch-*' ! -name "+launch+" -delete")
}

// ruled is a job that does one line of a shell after the other as they come, each as a new process of its running step.
type ruled struct {
	job, folder string
	said        int
}

func rule(t *testing.T, mib int) *ruled {
	t.Helper()
	r := &ruled{folder: openDir(t)}
	if err := os.Chown(r.folder, int(one.UID), -1); err != nil {
		t.Fatal(err)
	}
	r.job = submit(t, one, fmt.Sprintf("--gres=vgpu:1 --vgpu-mem=%d --vgpu-cores=30", mib), `exec 2>&1
		cd `+r.folder+`; vgpu-fill --upto 1000 --hold-until end > fill & filled=$!
		for i in $(seq 1 100); do
			until [ -e ask$i ]; do sleep 0.1; done
			sh ./ask$i > out$i 2>&1; mv out$i answer$i
			if grep -q ^true ask$i; then break; fi
		done; wait $filled; cat fill`)
	until(t, "the first process of job "+r.job, 60*time.Second, func() error {
		data, err := os.ReadFile(filepath.Join(r.folder, "fill"))
		if err == nil && !strings.Contains(string(data), "after 1000 MiB") {
			err = fmt.Errorf("it says %q", data)
		}
		return err
	})
	return r
}

func (r *ruled) do(t *testing.T, line string) (out string) {
	t.Helper()
	r.said++
	ask := filepath.Join(r.folder, "ask"+strconv.Itoa(r.said))
	if err := errors.Join(os.WriteFile(ask+".new", []byte(line+"\n"), 0o644), os.Chmod(ask+".new", 0o644), os.Rename(ask+".new", ask)); err != nil {
		t.Fatal(err)
	}
	until(t, "an answer of job "+r.job, 60*time.Second, func() error {
		data, err := os.ReadFile(filepath.Join(r.folder, "answer"+strconv.Itoa(r.said)))
		out = string(data)
		return err
	})
	return out
}

// held checks, beside a process that holds 1000 MiB, a new process of the running step and one of a new step.
func (r *ruled) held(t *testing.T, when string, mib int) {
	t.Helper()
	for what, out := range map[string]string{"a new process": r.do(t, seen+"; vgpu-fill"), "a new step": ok(t, one, "srun --overlap --jobid="+r.job+" sh -c '"+seen+"; vgpu-fill'").Stdout} {
		if first, _, _ := strings.Cut(out, "\n"); first != strconv.Itoa(mib) {
			t.Errorf("%s: %s of job %s sees %s MiB, want %d", when, what, r.job, first, mib)
		}
		if got := took(t, out); got > mib-1000 || got < mib-1000-2*contextMiB {
			t.Errorf("%s: %s of job %s takes %d MiB beside 1000 of %d:\n%s", when, what, r.job, got, mib, out)
		}
	}
}

// end ends the job and looks whether all that it used is in its record.
func (r *ruled) end(t *testing.T, mib, most int) {
	t.Helper()
	r.do(t, "true; touch end")
	out := finish(t, one, r.job)
	if !strings.Contains(out, "after 1000 MiB") {
		t.Errorf("the program of job %s that ran all the time: %s", r.job, out)
	}
	until(t, "the end of its slices", 30*time.Second, func() error {
		for _, s := range stateSlices(t) {
			if fmt.Sprint(s.Job) == r.job {
				return fmt.Errorf("it holds %+v", s)
			}
		}
		return nil
	})
	d := awaitUsage(t, r.job, 60*time.Second).VGPU.Nodes["n1"]
	if len(d) != 1 || d[0].MemMiB != mib || d[0].PeakMiB < most-contextMiB-64 || d[0].PeakMiB > most || d[0].Refused < 4 {
		t.Errorf("the record of job %s: %+v, want %d MiB, a peak close to %d, and each refusal", r.job, d, mib, most)
	}
}

// younger is a job of another user that begins and ends now.
func younger(t *testing.T, when string) (job string) {
	t.Helper()
	job = submit(t, two, "--gres=vgpu:1 --vgpu-mem=2000 --vgpu-cores=30", seen+"; vgpu-fill")
	out := finish(t, two, job)
	if first, _, _ := strings.Cut(out, "\n"); first != "2000" {
		t.Errorf("%s: a new job sees %s MiB", when, first)
	}
	wantLimit(t, out, 2000)
	return job
}

// wantMadeUp looks for the figure that the other release has more, in all that says what one of its jobs uses and what one that has ended did.
func wantMadeUp(t *testing.T, runs, ended string) {
	t.Helper()
	awaitUsage(t, ended, 60*time.Second)
	vgpuctl := "vgpuctl --config " + c.ConfigPath() + " --node n1 "
	for form, want := range map[string]struct {
		command string
		times   int
	}{
		"status":             {vgpuctl + "status --json", 1},
		"explain, it runs":   {vgpuctl + "explain --json " + runs, 1},
		"report, it runs":    {vgpuctl + "report --json " + runs, 1},
		"the record":         {"cat " + c.Home.Path("vgpu-spool", "n1", "history", ended+".0.json"), 2}, // and its step
		"explain, it ended":  {vgpuctl + "explain --json " + ended, 2},
		"report, it ended":   {vgpuctl + "report --json " + ended, 1},
		"sacct, its comment": {"sacct -X -n -P -o AdminComment -j " + ended, 1},
	} {
		out := strings.ReplaceAll(ok(t, root, want.command).Stdout, " ", "")
		if n := strings.Count(out, `"made_up":77`); n < want.times {
			t.Errorf("%s has the made-up figure %d times, want %d: %s", form, n, want.times, out)
		}
	}
}

// A release whose pages are all longer is installed under a job that runs, the first one again under jobs of both,
// and in the end everything is removed: whatever begins in between is held, and nothing that was used is lost.
func TestUpgradeUnderRunningJobs(t *testing.T) {
	if c.Isolation != "strict" {
		t.Skip("what a job is started with is mounted from where it is kept: mounts are forbidden here")
	}
	if c.Installed() {
		t.Skip("it would write over what is installed")
	}
	begin(t)
	other := buildOther(t)
	t.Cleanup(func() { install(t, c.Build) })
	set := "vgpuctl --config " + c.ConfigPath() + " --node n1 set "

	stepsDuringUpgrades(t, other)
	old := rule(t, 5000)
	install(t, other)
	old.held(t, "after the upgrade", 5000)
	ended := younger(t, "after the upgrade")
	ok(t, root, set+old.job+" --mem 4000")
	old.held(t, "changed by the new release", 4000)
	newer := rule(t, 6000)
	newer.held(t, "of the new release", 6000)
	wantMadeUp(t, newer.job, ended)

	install(t, c.Build)
	newer.held(t, "after going back", 6000)
	old.held(t, "after going back", 4000)
	younger(t, "after going back")
	install(t, other)
	old.end(t, 4000, 5000)
	install(t, c.Build)
	ok(t, root, set+newer.job+" --mem 4500")

	for _, part := range parts {
		if !slices.Contains(parts[:4], part) { // what jobs run with
			if err := os.Remove(c.Home.Program(part)); err != nil {
				t.Fatal(err)
			}
		}
	}
	newer.held(t, "after the removal", 4500)
	newer.end(t, 4500, 6000)
	install(t, c.Build)
	younger(t, "after all")
	oldBuildsGo(t)
}

// stepsDuringUpgrades has one step after the other begin while the two releases take each other's place: none finds a plugin without its
// second part, or with that of the other one.
func stepsDuringUpgrades(t *testing.T, other string) {
	t.Helper()
	const steps = 40
	job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000", fmt.Sprintf("for i in $(seq %d); do srun %s; done", steps, seen))
	for i := 0; state(t, job) == "PENDING" || state(t, job) == "RUNNING"; i++ {
		install(t, []string{other, c.Build}[i%2])
	}
	install(t, c.Build)
	if out := finish(t, one, job); strings.Count(out, "3000\n") != steps {
		t.Errorf("not all steps that began during upgrades see their slice: %s", out)
	}
}

// oldBuildsGo ages what is kept, and sweeps.
func oldBuildsGo(t *testing.T) {
	t.Helper()
	kept := func() []string {
		found, err := filepath.Glob(runDir("builds", "*"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return found
	}
	before := kept()
	if len(before) < 3 {
		t.Errorf("kept are %q, want those of three installations", before)
	}
	long := time.Now().Add(-time.Hour)
	for _, folder := range before {
		if err := os.Chtimes(folder, long, long); err != nil {
			t.Fatal(err)
		}
	}
	ok(t, root, "vgpuctl --config "+c.ConfigPath()+" --node n1 sweep")
	if left := kept(); len(left) != 1 {
		t.Errorf("a sweep leaves %q, want the installed build alone", left)
	}
}
