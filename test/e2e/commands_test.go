// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// What is for root does nothing for anybody else, in whatever surroundings he starts it; and root's commands bear a lack of
// descriptors and of a folder to be in.
func TestCommandsOfRootAreRootsAlone(t *testing.T) {
	begin(t)
	job, release := startedJob(t, "--gres=vgpu:1 --vgpu-mem=3000")
	look := func() string {
		state, err := os.ReadFile(runDir("state.json"))
		if err != nil {
			t.Fatal(err)
		}
		return string(state) + ok(t, root, "ls -lR --time-style=full-iso "+runDir("walls")+" "+runDir("jobs", job, "grant.json")+" 2>/dev/null; stat -c %a:%u "+nodes()+"/nvidia?").Stdout
	}
	before := look()
	hostile := "mkdir gone && cd gone && rmdir ../gone && ulimit -n 64; export SLURM_CONF=/dev/null TMPDIR=/nowhere HOME=/nowhere PATH=$PWD:$PATH " +
		"LD_LIBRARY_PATH=/tmp GODEBUG=execerrdot=0 VGPU_RUN_DIR=/tmp SLURMD_NODENAME=../../tmp SLURM_JOB_ID=" + job + " SLURM_JOB_UID=0; "
	command := strings.TrimPrefix(tool("n1", ""), "vgpuctl")
	for _, args := range []string{"set " + job + " --mem 2000", "sweep", "audit --act", "sample", "devices close", "devices open", "records --flush",
		"wall raise " + job + " /sys/fs/cgroup", "wall lower"} {
		for _, closed := range []string{"", "<&- >&- 2>&-"} {
			line := fmt.Sprintf("%s $(command -v vgpuctl) %s %s %s", hostile, command, args, closed)
			if result := run(t, one, line); result.Code == 0 || result.Code > 78 || strings.Contains(result.Stderr, "panic") {
				t.Errorf("vgpuctl %s of a user: %s", args, result)
			}
		}
	}
	for _, program := range []string{"vgpu-prolog", "vgpu-epilog"} {
		run(t, one, fmt.Sprintf("%s $(command -v %s || echo %s) --config %s <&- >&- 2>&-", hostile, program, c.Home.Program(program), c.ConfigPath()))
	}
	if after := look(); after != before {
		t.Errorf("something changed:\n%s\n%s", before, after)
	}
	ok(t, root, "mkdir gone && cd gone && rmdir ../gone && "+tool("n1", "set "+job+" --mem 2500")+" <&- >&- 2>&-")
	if held := slicesOf(t, job); len(held) != 1 || held[0].MemMiB != 2500 {
		t.Errorf("root's command without descriptors: %+v", held)
	}
	release()
	finish(t, one, job)
}
