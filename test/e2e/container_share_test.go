// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A program in a container has its share and no more, also where its mounts are cut off from the host's, as Charliecloud's are.
func TestShareInAContainer(t *testing.T) {
	for name, enter := range map[string]func(*testing.T) string{
		"bwrap": func(t *testing.T) string {
			need(t, one, "bwrap", "bwrap --version")
			return "bwrap --unshare-user --unshare-pid --bind " + image(t, one) + " / --proc /proc --dev-bind /dev /dev " + given("--dev-bind %s %s ") +
				"--bind " + one.Home + " /mnt --chdir /mnt /bin/"
		},
		"ch-run": func(t *testing.T) string {
			need(t, one, "ch-run", "ch-run --version")
			return "ch-run " + given("-b %s:%s ") + "-b " + one.Home + ":/mnt --cd /mnt " + image(t, one) + " -- /bin/"
		},
		"apptainer": func(t *testing.T) string {
			return apptainer(t) + "-B " + one.Home + ":/mnt --pwd /mnt " + image(t, one) + " /bin/"
		},
		"podman": func(t *testing.T) string {
			command := podman(t, one)
			configurePodman(t)
			return command + "run --rm --log-driver passthrough --cgroups=disabled --network none " + given("-v %s:%s:rbind ") + "-v " + one.Home + ":/mnt --workdir /mnt --rootfs " + image(t, one) + " /bin/"
		},
	} {
		t.Run(name, func(t *testing.T) {
			needStrict(t)
			needVgpud(t)
			begin(t)
			inside, line := busyIn(t, one, "inside")
			job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=30", enter(t)+line)
			inside.awaitShare(0, 30)
			inside.end()
			finish(t, one, job)
		})
	}
}

// What a program is shown of its GPU, what it cannot open, and what is accounted.
func TestAContainerIsShownItsSlice(t *testing.T) {
	look := `/bin/sh -c "nvidia-smi -L | wc -l; nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits; for i in 0 1; do if (: </gpus/nvidia\$i) 2>/dev/null; then echo open; else echo closed; fi; done; ` + fillInside + `"`
	for name, enter := range map[string]func(*testing.T) string{
		"bwrap": func(t *testing.T) string {
			need(t, one, "bwrap", "bwrap --version")
			return "bwrap --unshare-user --unshare-pid --bind " + image(t, one) + " / --proc /proc --dev-bind /dev /dev " + given("--dev-bind %s %s ")
		},
		"ch-run": func(t *testing.T) string {
			need(t, one, "ch-run", "ch-run --version")
			return "ch-run " + given("-b %s:%s ") + image(t, one) + " -- "
		},
		"apptainer": func(t *testing.T) string { return apptainer(t) + image(t, one) + " " },
		"podman": func(t *testing.T) string {
			command := podman(t, one)
			configurePodman(t)
			return command + "run --rm --log-driver passthrough --cgroups=disabled --network none " + given("-v %s:%s:rbind ") + "--rootfs " + image(t, one) + " "
		},
	} {
		t.Run(name, func(t *testing.T) {
			needStrict(t)
			begin(t)
			job := submit(t, one, fmt.Sprintf("--gres=vgpu:1 --vgpu-mem=%d", containerMiB), "exec 2>&1\n"+enter(t)+look+"\ntrue")
			out := finish(t, one, job)
			want := fmt.Sprintf("1\n%d\n", containerMiB)
			opens := 1
			if name == "apptainer" { // it was given no nodes
				opens = 0
			}
			if !strings.Contains(out, want) || strings.Count(out, "open\n") != opens || strings.Count(out, "closed\n") != gpus-opens || verdict(t, out) != limited {
				t.Errorf("want one GPU of %d MiB, the other closed:\n%s", containerMiB, out)
			}
			d := awaitUsage(t, job, 60*time.Second).VGPU.Nodes["n1"]
			if len(d) != 1 || d[0].PeakMiB > containerMiB || d[0].PeakMiB < containerMiB-contextMiB || d[0].Refused == 0 {
				t.Errorf("AdminComment: %+v", d)
			}
		})
	}
}

// What a program in a container held is free when it has ended, however it did, also for the next container.
func TestAContainerThatEndsHoldsNothing(t *testing.T) {
	need(t, one, "bwrap", "bwrap --version")
	begin(t)
	enter := "bwrap --unshare-user --unshare-pid --die-with-parent --bind " + image(t, one) + " / --proc /proc --dev-bind /dev /dev " + given("--dev-bind %s %s ")
	out := batch(t, one, fmt.Sprintf("--gres=vgpu:1 --vgpu-mem=%d", containerMiB), "exec 2>&1\n"+
		enter+`/bin/sh -c "vgpu-fill --upto 2000 >/dev/null"`+"\n"+
		enter+`/bin/sh -c "vgpu-fill --upto 2000 --hold-until /tmp/never >/tmp/out & until test -s /tmp/out; do sleep 0.1; done; sleep 0.3; kill -9 \$!"`+"\n"+
		enter+fillInside+"\ntrue")
	if got := verdict(t, out); got != limited {
		t.Errorf("%s:\n%s", got, out)
	}
}
