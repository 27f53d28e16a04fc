// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// released is a repository of nothing but what a release goes by; its packages are made by a line of make.
type released struct{ dir string }

func newReleased(t *testing.T) released {
	t.Helper()
	r := released{t.TempDir()}
	script, err := os.ReadFile("release.sh")
	if err != nil {
		t.Fatal(err)
	}
	r.file(t, "packaging/release.sh", string(script))
	r.file(t, "VERSION", "1.2.3\n")
	r.file(t, "CHANGELOG.md", "# Changelog\n\n## 1.2.3 (2026-11-28)\n\nNew here.\n\n### From before\n\n* Gone: x.\n\n## 1.2.2 (2026-11-01)\n\nOld.\n")
	r.file(t, ".gitignore", "/build/\n")
	r.file(t, "test/gpu/gpu.mk", "test-gpu: \n")
	r.file(t, "Makefile", "-include test/gpu/gpu.mk\ntest:\ntest-packages:\n\t@mkdir -p build/packages && cd build/packages && touch slurm-vgpu_1.2.3-1_amd64.deb slurm-vgpu-1.2.3-1.x86_64.rpm\n"+
		"\t@printf '#!/bin/sh\\necho vgpuctl $(SAYS)1.2.3\\n' >build/vgpuctl && chmod +x build/vgpuctl\n")
	r.git(t, "init", "-q")
	r.commit(t)
	return r
}

func (r released) file(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// environment is one in which git and make are nobody else's.
func (r released) environment(more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a",
		"GIT_COMMITTER_EMAIL=a@b"}, more...)
}

func (r released) git(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.Command("git", args...)
	command.Dir, command.Env = r.dir, r.environment()
	said, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, said)
	}
	return string(said)
}

func (r released) commit(t *testing.T) {
	t.Helper()
	r.git(t, "add", "-A")
	r.git(t, "commit", "-q", "--allow-empty", "-m", "a commit")
}

func (r released) run(env []string, args ...string) (string, error) {
	command := exec.Command("packaging/release.sh", args...)
	command.Dir, command.Env = r.dir, r.environment(env...)
	said, err := command.CombinedOutput()
	return string(said), err
}

func TestAReleaseIsMadeOfOneCommitAndNamed(t *testing.T) {
	r := newReleased(t)
	tested := []string{"TESTED=test test-gpu"}
	for _, dry := range []string{"--dry-run", ""} {
		said, err := r.run(tested, append([]string{"1.2.3"}, strings.Fields(dry)...)...)
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		if tags := strings.TrimSpace(r.git(t, "tag")); dry != "" && tags != "" || dry == "" && tags != "v1.2.3" {
			t.Errorf("%q: the tags are %q", dry, tags)
		}
	}
	out := filepath.Join(r.dir, "build/release")
	sums := exec.Command("sha256sum", "--check", "--quiet", "SHA256SUMS")
	sums.Dir = out
	if said, err := sums.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
	notes, _ := os.ReadFile(filepath.Join(out, "NOTES.md"))
	head := strings.TrimSpace(r.git(t, "rev-parse", "HEAD"))
	want := "slurm-vgpu 1.2.3\n\nNew here.\n\n### From before\n\n* Gone: x.\n\n\nTested on commit " + head + ": make test, make test-gpu, make test-packages.\n"
	if string(notes) != want {
		t.Errorf("the notes are\n%s\nwant\n%s", notes, want)
	}
	if kind := strings.TrimSpace(r.git(t, "cat-file", "-t", "v1.2.3")); kind != "tag" {
		t.Errorf("the tag is a %s", kind)
	}
	if said := r.git(t, "tag", "-l", "--format=%(contents)", "v1.2.3"); !strings.Contains(said, "### From before") {
		t.Errorf("the tag says %s", said)
	}
	listed, _ := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
	for _, name := range []string{"slurm-vgpu_1.2.3-1_amd64.deb", "slurm-vgpu-1.2.3-1.x86_64.rpm", "slurm-vgpu-1.2.3.tar.gz", "NOTES.md"} {
		if !strings.Contains(string(listed), "  "+name+"\n") {
			t.Errorf("%s has no checksum", name)
		}
	}
}

func TestNoReleaseOfWhatIsNotReady(t *testing.T) {
	const tested = "TESTED=test"
	for name, tc := range map[string]struct {
		change func(t *testing.T, r released)
		env    string
		args   string
		says   string
	}{
		"another number":      {nil, tested, "1.2.4", "the file VERSION says 1.2.3, not 1.2.4"},
		"no number":           {nil, tested, "v1.2.3", "v1.2.3 is no version"},
		"another option":      {nil, tested, "1.2.3 --push", "--push: want --dry-run"},
		"not committed":       {func(t *testing.T, r released) { r.file(t, "new", "") }, tested, "1.2.3", "not everything is committed:\n?? new"},
		"tagged":              {func(t *testing.T, r released) { r.git(t, "tag", "v1.2.3") }, tested, "1.2.3", "there is a tag v1.2.3"},
		"not tested":          {nil, "", "1.2.3", "name the tests that have passed"},
		"tested by no target": {nil, "TESTED=test test-much", "1.2.3", "there is no target test-much"},
		"a program from before": {func(t *testing.T, r released) {
			makefile, _ := os.ReadFile(filepath.Join(r.dir, "Makefile"))
			r.file(t, "Makefile", "SAYS=0.\n"+string(makefile))
			r.commit(t)
		}, tested, "1.2.3", "build/vgpuctl says that it is vgpuctl 0.1.2.3"},
		"not dated": {func(t *testing.T, r released) {
			r.file(t, "CHANGELOG.md", "# Changelog\n\n## 1.2.3 (unreleased)\n\nNew.\n")
			r.commit(t)
		}, tested, "1.2.3", `CHANGELOG.md begins with "## 1.2.3 (unreleased)": want "## 1.2.3 (20`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReleased(t)
			if tc.change != nil {
				tc.change(t, r)
			}
			before := r.git(t, "tag")
			said, err := r.run([]string{tc.env}, strings.Fields(tc.args)...)
			if err == nil || !strings.Contains(said, tc.says) {
				t.Errorf("%v: %s", err, said)
			}
			if after := r.git(t, "tag"); after != before {
				t.Errorf("there is a tag now: %s", after)
			}
		})
	}
}
