// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// What a program's libcuda has the driver schedule stands on its job's page, which root reads, while the program runs.
func TestAProgramsChannelGroupsAreWrittenDown(t *testing.T) {
	needVgpud(t)
	begin(t)
	areWrittenDown(t, "vgpu-busy")
	// By the guard alone, as in a container without the preload, where the C library's ioctl comes before ours.
	t.Run("by its guard", func(t *testing.T) {
		needStrict(t)
		areWrittenDown(t, `unshare --user --map-root-user --mount sh -c 'mount --bind /dev/null /etc/ld.so.preload; unset LD_PRELOAD; exec vgpu-busy "$@"' -`)
	})
}

func areWrittenDown(t *testing.T, busy string) {
	t.Helper()
	folder := openDir(t)
	job := submit(t, one, "--gres=vgpu:1", busy+` --us 2000 --for 60000 & busy=$!
		until [ -e `+folder+`/seen ]; do sleep 0.05; done; kill $busy`)
	number, err := strconv.ParseUint(job, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	path := rundir.Dir(runDir()).Groups(uint32(number))
	var named []ledger.GroupsProcess
	until(t, "a channel group of job "+job, 60*time.Second, func() error {
		if named, err = ledger.ReadGroups(path, uint32(number)); err == nil && (len(named) != 1 || len(named[0].Groups) != 1 || len(named[0].Groups[0].Channels) == 0) {
			err = fmt.Errorf("%d processes: %+v", len(named), named)
		}
		return err
	})
	process, group := named[0], named[0].Groups[0]
	if on, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", process.PID, group.FD)); err != nil || !strings.Contains(on, "control/nvidiactl") {
		t.Errorf("descriptor %d of process %d is of %s, %v", group.FD, process.PID, on, err)
	}
	if group.Subdevice == 0 || group.Engine != 1 || process.More != 0 {
		t.Errorf("it says %+v of %+v", group, process)
	}
	ok(t, root, "touch "+folder+"/seen")
}
