// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// container has a folder mounted in a mount namespace of its own until it is told to end.
func container(t *testing.T, folder string) (end func()) {
	t.Helper()
	at := t.TempDir()
	cmd := exec.Command("unshare", "-m", "sh", "-c", `mount --bind "$0" "$1" && echo there && cat`, folder, at)
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Skip(err)
	}
	end = func() { in.Close(); _ = cmd.Wait() }
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "there\n" {
		end()
		t.Skipf("nothing can be mounted here: %q, %v", line, err)
	}
	t.Cleanup(end)
	return end
}

func TestTheFolderOfAStepWaitsForItsContainer(t *testing.T) {
	dir, g := rundir.Dir(t.TempDir()), Grant{Job: 7, Isolation: "strict"}
	steps := filepath.Dir(dir.Step(7, "0"))
	for _, name := range []string{"0", "1", "2", "3", "batch"} {
		if err := errors.Join(os.MkdirAll(dir.Step(7, name), 0o755), os.WriteFile(filepath.Join(dir.Step(7, name), "limits"), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	end := func(name, want string) {
		t.Helper()
		if err := EndStep(dir, g, name); err != nil {
			t.Fatal(err)
		}
		var left []string
		entries, _ := os.ReadDir(steps)
		for _, entry := range entries {
			left = append(left, entry.Name())
		}
		slices.Sort(left)
		if got := strings.Join(left, " "); got != want {
			t.Errorf("after step %s there are %q, want %q", name, got, want)
		}
	}
	end("1", "0 2 3 batch")
	leave := container(t, dir.Step(7, "0"))
	end("0", ".0 2 3 batch")
	end("2", ".0 3 batch")
	if _, err := os.Stat(filepath.Join(steps, ".0", "limits")); err != nil {
		t.Errorf("what it was given: %v", err)
	}
	end("2", ".0 3 batch") // once more
	leave()
	// The kernel lets go of its mounts some time after the last process; each step that ends looks again.
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if err := EndStep(dir, g, "3"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(steps, ".0")); err != nil {
			break
		}
	}
	end("3", "batch")
	end("batch", "")
	end("batch", "")
}
