// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// machine is a good one with systemd, on which vgpud runs.
func machine(t *testing.T) *vgpudGround {
	t.Helper()
	dir := t.TempDir()
	for path, text := range map[string]string{
		"proc/self/status":                  "Name:\tx\nCapEff:\t000001ffffffffff\n",
		"proc/sys/kernel/yama/ptrace_scope": "1\n",
		"sys/kernel/security/lockdown":      "none [integrity] confidentiality\n",
		"run/systemd/system/none":           "",
		"run/slurm-vgpu/vgpud.lock":         "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, path), text)
	}
	for _, pid := range []string{"self", "12", "34"} {
		moves(t, dir, pid, "mnt:[1]")
	}
	cfg := config.Default()
	cfg.RunDir = filepath.Join(dir, "run/slurm-vgpu")
	g := &vgpudGround{config: cfg, root: dir, isRoot: true, inventory: &device.Inventory{GPUs: []device.GPU{{UUID: "GPU-a", Index: 0}, {UUID: "GPU-b", Index: 1, Lost: "x"}}},
		copies: func() error { return unix.EBADF }, find: func(_, _ string, gpus []device.GPU) ([]error, error) { return make([]error, len(gpus)), nil }}
	g.enabled(t, "enabled", 0)
	held, err := trusted.Lock(t.Context(), cfg.Run().VgpudLock())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { held.Close() })
	return g
}

// moves puts a process into a mount namespace; "": it has ended.
func moves(t *testing.T, root, pid, namespace string) {
	t.Helper()
	link := filepath.Join(root, "proc", pid, "ns/mnt")
	_ = os.Remove(link)
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		t.Fatal(err)
	}
	if namespace == "" {
		return
	}
	if err := os.Symlink(namespace, link); err != nil {
		t.Fatal(err)
	}
}

// enabled lets systemctl answer.
func (g *vgpudGround) enabled(t *testing.T, word string, status int) {
	t.Helper()
	g.systemctl = filepath.Join(g.root, "systemctl")
	write(t, g.systemctl, fmt.Sprintf(`#!/bin/sh
case $* in
'is-enabled slurm-vgpu-vgpud.service') echo %s; exit %d ;;
'show --property=MainPID --value slurmd.service slurm-vgpu-vgpud.service') echo 12; echo; echo 34 ;;
*) exit 9 ;;
esac
`, word, status))
	if err := os.Chmod(g.systemctl, 0o755); err != nil {
		t.Fatal(err)
	}
}

// keeps gives a job a slice.
func (g *vgpudGround) keeps(t *testing.T) {
	t.Helper()
	boot, err := inventory.BootID()
	if err != nil {
		t.Fatal(err)
	}
	tx, err := state.Of(g.config, boot, hclog.NewNullLogger()).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.End()
	tx.Put(12, []state.Slice{{Job: 12, Slice: device.Slice{Device: "GPU-a", MemMiB: 10}}})
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// ends lets vgpud have ended: another inode has its lock.
func (g *vgpudGround) ends(t *testing.T) {
	t.Helper()
	if err := os.Remove(g.config.Run().VgpudLock()); err != nil {
		t.Fatal(err)
	}
}

// need is a change to a good machine, and what is said of it.
type need struct {
	change func(t *testing.T, g *vgpudGround)
	want   []string // "bad: …" or "warning: …", each the beginning of a finding
}

func (n need) try(t *testing.T) {
	t.Helper()
	g := machine(t)
	n.change(t, g)
	g.look(t.Context())
	var got []string
	for _, f := range g.Findings {
		switch {
		case f.Check != vgpudCheck:
			t.Errorf("a finding of %s", f.Check)
		case f.Warning:
			got = append(got, "warning: "+f.Says)
		case !f.OK:
			got = append(got, "bad: "+f.Says)
		}
		if !f.OK && f.Remedy == "" {
			t.Errorf("%q has no remedy", f.Says)
		}
	}
	if !slices.EqualFunc(got, n.want, strings.HasPrefix) {
		t.Errorf("got %q, want %q", got, n.want)
	}
}

func TestWhetherVgpudRuns(t *testing.T) {
	for name, n := range map[string]need{
		"all is well": {func(*testing.T, *vgpudGround) {}, nil},
		"not root":    {func(_ *testing.T, g *vgpudGround) { g.isRoot = false }, []string{"warning: not checked: needs root"}},
		"it has ended": {func(t *testing.T, g *vgpudGround) { g.ends(t) },
			[]string{"bad: it does not run; no GPU has slices that it would keep"}},
		"it has ended, with slices": {func(t *testing.T, g *vgpudGround) { g.keeps(t); g.ends(t) },
			[]string{"bad: it does not run: slices keep the weights"}},
		"without systemd": {func(t *testing.T, g *vgpudGround) {
			g.ends(t)
			if err := os.RemoveAll(filepath.Join(g.root, "run/systemd")); err != nil {
				t.Fatal(err)
			}
			g.enabled(t, "disabled", 1)
		}, nil},
		"without systemd, with slices": {func(t *testing.T, g *vgpudGround) {
			g.keeps(t)
			g.ends(t)
			if err := os.RemoveAll(filepath.Join(g.root, "run/systemd")); err != nil {
				t.Fatal(err)
			}
		}, []string{"bad: it does not run: slices keep the weights"}},
		"a lock that is none": {func(t *testing.T, g *vgpudGround) {
			g.ends(t)
			if err := os.Symlink("/dev/null", g.config.Run().VgpudLock()); err != nil {
				t.Fatal(err)
			}
		}, []string{"bad: whether it runs is not known"}},
		"disabled":     {func(t *testing.T, g *vgpudGround) { g.enabled(t, "disabled", 1) }, []string{"bad: slurm-vgpu-vgpud.service is disabled"}},
		"masked":       {func(t *testing.T, g *vgpudGround) { g.enabled(t, "masked", 1) }, []string{"bad: slurm-vgpu-vgpud.service is masked: neither a prolog"}},
		"no unit":      {func(t *testing.T, g *vgpudGround) { g.enabled(t, "", 1) }, []string{"bad: there is no slurm-vgpu-vgpud.service"}},
		"no systemctl": {func(_ *testing.T, g *vgpudGround) { g.systemctl = "/none" }, []string{"warning: whether slurm-vgpu-vgpud.service is enabled is not known"}},
	} {
		t.Run(name, n.try)
	}
}

func TestWhoseMountsVgpudSees(t *testing.T) {
	move := func(pid, namespace string) func(*testing.T, *vgpudGround) {
		return func(t *testing.T, g *vgpudGround) { t.Helper(); moves(t, g.root, pid, namespace) }
	}
	for name, n := range map[string]need{
		"slurmd's own":        {move("12", "mnt:[2]"), []string{"bad: it sees no job's pages"}},
		"vgpud's own":         {move("34", "mnt:[2]"), []string{"bad: it sees no job's pages"}},
		"a login shell's own": {move("self", "mnt:[2]"), []string{"warning: this command is in another mount namespace"}},
		"slurmd has ended":    {move("12", ""), nil},
		"without systemd it is begun beside slurmd": {func(t *testing.T, g *vgpudGround) {
			moves(t, g.root, "12", "mnt:[2]")
			if err := os.RemoveAll(filepath.Join(g.root, "run/systemd")); err != nil {
				t.Fatal(err)
			}
		}, nil},
	} {
		t.Run(name, n.try)
	}
}

func TestWhatVgpudNeeds(t *testing.T) {
	refuses := func(open error, each ...error) func(string, string, []device.GPU) ([]error, error) {
		return func(_, _ string, gpus []device.GPU) ([]error, error) { return each[:min(len(each), len(gpus))], open }
	}
	put := func(path, text string) func(*testing.T, *vgpudGround) {
		return func(t *testing.T, g *vgpudGround) { t.Helper(); write(t, filepath.Join(g.root, path), text) }
	}
	for name, n := range map[string]need{
		"an old kernel": {func(_ *testing.T, g *vgpudGround) { g.copies = func() error { return unix.ENOSYS } },
			[]string{"bad: this kernel copies no descriptor"}},
		"Yama":        {put("proc/sys/kernel/yama/ptrace_scope", "3\n"), []string{"bad: kernel.yama.ptrace_scope is 3"}},
		"Yama's 2":    {put("proc/sys/kernel/yama/ptrace_scope", "2\n"), nil},
		"a pod":       {put("proc/self/status", "CapEff:\t00000000a80425fb\n"), []string{"bad: CAP_SYS_PTRACE is missing"}},
		"locked down": {put("sys/kernel/security/lockdown", "none integrity [confidentiality]\n"), []string{"warning: the kernel is locked down"}},
		"no device file": {func(_ *testing.T, g *vgpudGround) {
			g.find = refuses(&fs.PathError{Op: "open", Path: "/dev/nvidiactl", Err: unix.ENOENT})
		}, []string{"bad: open /dev/nvidiactl"}},
		"no GPUs at all": {func(_ *testing.T, g *vgpudGround) {
			g.inventory, g.find = nil, refuses(&fs.PathError{Op: "open", Path: "/dev/nvidiactl", Err: unix.ENOENT})
		}, []string{"warning: whether the driver takes its calls is not checked: no driver"}},
		"SELinux": {func(_ *testing.T, g *vgpudGround) {
			g.find = refuses(&fs.PathError{Op: "open", Path: "/dev/nvidiactl", Err: unix.EACCES})
		}, []string{"bad: open /dev/nvidiactl: permission denied"}},
		"no client": {func(_ *testing.T, g *vgpudGround) { g.find = refuses(fmt.Errorf("x: %w", channels.Status(0x22))) },
			[]string{"bad: the driver refuses root a client: x"}},
		"no such GPU": {func(_ *testing.T, g *vgpudGround) { g.find = refuses(nil, errors.New("the driver has no GPU at 0")) },
			[]string{"bad: the driver refuses root GPU 0: the driver has no GPU at 0"}},
		"no inventory": {func(_ *testing.T, g *vgpudGround) { g.inventory = nil }, []string{"warning: whether the driver answers for each GPU"}},
	} {
		t.Run(name, n.try)
	}
}

// On the machine of the test, whatever it has: nothing acts, and nothing is left open.
func TestTheProbeLeavesNothingOpen(t *testing.T) {
	cfg := config.Default()
	cfg.RunDir, cfg.DeviceDir = t.TempDir(), t.TempDir()
	write(t, filepath.Join(cfg.DeviceDir, "nvidiactl"), "") // which takes no ioctl
	before := openFiles(t)
	found := Vgpud(t.Context(), cfg, &device.Inventory{GPUs: []device.GPU{{UUID: "GPU-a", PCIBusID: "00000000:01:00.0"}}})
	if os.Geteuid() == 0 && !slices.ContainsFunc(found, func(f Finding) bool { return strings.Contains(f.Says, "inappropriate ioctl") }) {
		t.Errorf("a file that is no driver's: %+v", found)
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files are open, %d were", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
