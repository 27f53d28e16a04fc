// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

const (
	vgpudCheck = "vgpud"
	vgpudUnit  = "slurm-vgpu-vgpud.service"
	// systemctlTime bounds a systemd that does not answer.
	systemctlTime = 5 * time.Second
)

// vgpudGround is what vgpud needs of a machine, and where that is seen; tests put others in their place.
type vgpudGround struct {
	Report
	config    config.Config
	inventory *device.Inventory // nil: the GPUs are not known
	root      string            // before /proc, /sys and /run
	systemctl string
	isRoot    bool
	copies    func() error // an error that wraps ENOSYS: this kernel copies no descriptor of a process
	find      func(control, deviceDir string, gpus []device.GPU) (wrong []error, err error)
	// hasNoDriver: there are no GPUs here, and nothing to keep.
	hasNoDriver bool
}

// Vgpud says whether vgpud runs, and what keeps it from keeping the shares. It asks the driver for a client and a
// GPU, and for nothing that acts.
func Vgpud(ctx context.Context, cfg config.Config, inventory *device.Inventory) []Finding {
	g := vgpudGround{config: cfg, inventory: inventory, root: "/", systemctl: "systemctl", isRoot: os.Geteuid() == 0, copies: copiesDescriptors, find: findGPUs}
	g.look(ctx)
	return g.Findings
}

// VgpudMayNot is for vgpud itself: what the kernel keeps it from, with its own rights.
func VgpudMayNot() []Finding {
	g := vgpudGround{root: "/", copies: copiesDescriptors}
	g.kernel()
	return g.Findings
}

func (g *vgpudGround) look(ctx context.Context) {
	if !g.isRoot {
		g.Warn(vgpudCheck, "run it as root", "not checked: needs root")
		return
	}
	g.unit(ctx)
	g.kernel()
	g.driver()
	if found := len(g.Findings); g.hasNoDriver {
		g.Warn(vgpudCheck, "load the driver, then vgpu-gres inventory --write", "whether the driver takes its calls is not checked: no driver")
	} else if found == 0 {
		g.OK(vgpudCheck, "the kernel and the driver take its calls")
	}
	g.runs()
	g.mounts(ctx)
}

// mounts: a job's pages are a mount of slurmd's mount namespace alone.
func (g *vgpudGround) mounts(ctx context.Context) {
	if !g.hasSystemd() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, systemctlTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, g.systemctl, "show", "--property=MainPID", "--value", "slurmd.service", vgpudUnit).Output()
	pids := strings.Fields(string(out))
	if err != nil || len(pids) != 2 || slices.Contains(pids, "0") { // one of them does not run
		return
	}
	slurmd, vgpud, self := g.mountsOf(pids[0]), g.mountsOf(pids[1]), g.mountsOf("self")
	switch {
	case slurmd == "" || vgpud == "" || self == "": // one has ended
	case slurmd != vgpud:
		g.Bad(vgpudCheck, "take what gives it mounts of its own (PrivateTmp=, ProtectSystem=, ProtectHome= and the like) out of the unit that has it, by `systemctl edit`, and restart that while the node has no jobs",
			"it sees no job's pages, as slurmd.service and %s are in different mount namespaces: slices have no weights and no caps, and GPU time is not counted", vgpudUnit)
	case self != vgpud:
		g.Warn(vgpudCheck, "nsenter --target "+pids[1]+" --mount, and the command there",
			"this command is in another mount namespace than slurmd and vgpud, as a login shell with mounts of its own (pam_namespace) is: it sees the pages of no job that began later")
	}
}

// mountsOf names the mount namespace of a process; "": it is not known.
func (g *vgpudGround) mountsOf(pid string) string {
	name, err := os.Readlink(filepath.Join(g.root, "proc", pid, "ns/mnt"))
	if err != nil {
		return ""
	}
	return name
}

// hasSystemd is sd_booted(3).
func (g *vgpudGround) hasSystemd() bool {
	_, err := os.Lstat(filepath.Join(g.root, "run/systemd/system"))
	return err == nil
}

func (g *vgpudGround) runs() {
	runs, err := trusted.IsLocked(g.config.Run().VgpudLock())
	kept := keptGPUs(g.config)
	remedy := "the next prolog of a job with slices begins it"
	if g.hasSystemd() {
		remedy = "systemctl start " + vgpudUnit + "; journalctl -u " + vgpudUnit + " says why it ended"
	}
	switch {
	case err != nil:
		g.Bad(vgpudCheck, "look at "+g.config.RunDir, "whether it runs is not known: %v", err)
	case runs:
		g.OK(vgpudCheck, "it runs")
	case kept > 0:
		g.Bad(vgpudCheck, remedy, "it does not run: slices keep the weights that the driver had last, caps are not held, and GPU time is not counted (GPUs: %d)", kept)
	case g.hasSystemd():
		g.Bad(vgpudCheck, remedy, "it does not run; no GPU has slices that it would keep")
	default:
		g.OK(vgpudCheck, "it does not run yet: the first prolog of a job with slices begins it")
	}
}

// keptGPUs counts the GPUs of whose slices vgpud keeps the shares.
func keptGPUs(cfg config.Config) int {
	boot, err := inventory.BootID()
	if err != nil {
		return 0
	}
	store := state.Of(cfg, boot, hclog.NewNullLogger())
	current, err := store.Read()
	if err != nil { // who looks at the state says so
		return 0
	}
	refused, gpus := store.Refused(), map[device.UUID]bool{}
	for _, s := range current.Slices {
		if !slices.Contains(refused, s.Device) {
			gpus[s.Device] = true
		}
	}
	return len(gpus)
}

// unit: without systemd the prolog begins vgpud.
func (g *vgpudGround) unit(ctx context.Context) {
	if !g.hasSystemd() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, systemctlTime)
	defer cancel()
	remedy := "systemctl enable --now " + vgpudUnit
	out, err := exec.CommandContext(ctx, g.systemctl, "is-enabled", vgpudUnit).Output()
	word := strings.TrimSpace(string(out))
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case err != nil && !exited, exited && !exit.Exited():
		g.Warn(vgpudCheck, remedy, "whether %s is enabled is not known: %v", vgpudUnit, err)
	case word == "":
		g.Bad(vgpudCheck, "install all of slurm-vgpu, then "+remedy, "there is no %s", vgpudUnit)
	case strings.HasPrefix(word, "masked"): // also masked-runtime
		g.Bad(vgpudCheck, "systemctl unmask "+vgpudUnit+", then "+remedy, "%s is masked: neither a prolog nor a boot can start it", vgpudUnit)
	case err != nil:
		g.Bad(vgpudCheck, remedy, "%s is %s: after a boot it does not run until a job with slices comes", vgpudUnit, word)
	}
}

// kernel: each is a way in which the copy of a program's descriptor is refused, through which a slice is set.
func (g *vgpudGround) kernel() {
	if errors.Is(g.copies(), unix.ENOSYS) {
		g.Bad(vgpudCheck, "a kernel from Linux 5.6 on", "this kernel copies no descriptor of a process (pidfd_getfd): it sets no time slices")
	}
	if scope := g.text("proc/sys/kernel/yama/ptrace_scope"); scope == "3" {
		g.Bad(vgpudCheck, "kernel.yama.ptrace_scope=2 in /etc/sysctl.d, and a reboot: from 3 there is no way back",
			"kernel.yama.ptrace_scope is 3: the kernel refuses to copy a descriptor, so vgpud sets no time slices")
	}
	if !g.mayTrace() {
		g.Bad(vgpudCheck, "give the pod or container of slurmd and vgpud CAP_SYS_PTRACE (capabilities: add: [SYS_PTRACE])",
			"CAP_SYS_PTRACE is missing: it copies no descriptor of other users' processes, and sets no time slices")
	}
	if strings.Contains(g.text("sys/kernel/security/lockdown"), "[confidentiality]") {
		g.Warn(vgpudCheck, "see whether the time slices of `vgpuctl status` move; else lockdown=integrity",
			"the kernel is locked down to confidentiality, under which vgpud was not tried")
	}
}

func (g *vgpudGround) text(path string) string {
	data, err := os.ReadFile(filepath.Join(g.root, path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// mayTrace goes by what this process may do, which is started beside slurmd as vgpud is.
func (g *vgpudGround) mayTrace() bool {
	for line := range strings.Lines(g.text("proc/self/status")) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			effective, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return err != nil || effective&(1<<unix.CAP_SYS_PTRACE) != 0
		}
	}
	return true
}

// copiesDescriptors asks for a copy of a descriptor of nobody.
func copiesDescriptors() error {
	_, err := unix.PidfdGetfd(-1, 0, 0)
	return err
}

// driver says what is wrong with the driver. What cannot be opened is another matter than what is refused.
func (g *vgpudGround) driver() {
	control := filepath.Join(g.config.DeviceDir, "nvidiactl")
	var gpus []device.GPU
	if g.inventory != nil {
		gpus = slices.DeleteFunc(slices.Clone(g.inventory.GPUs), func(gpu device.GPU) bool { return gpu.Lost != "" })
	}
	wrong, err := g.find(control, g.config.DeviceDir, gpus)
	switch _, refused := errors.AsType[channels.Status](err); {
	case refused:
		g.Bad(vgpudCheck, anotherDriver, "the driver refuses root a client: %v", err)
	case errors.Is(err, fs.ErrNotExist) && g.inventory == nil:
		g.hasNoDriver = true
	case err != nil:
		g.Bad(vgpudCheck, "ls -l "+control+"; is the driver loaded, and does SELinux or a cgroup of devices keep root from it?", "%v", err)
	case g.inventory == nil:
		g.Warn(vgpudCheck, "vgpu-gres inventory --write", "whether the driver answers for each GPU is not checked: the GPUs are not known")
	}
	for i, err := range wrong {
		if err != nil {
			g.Bad(vgpudCheck, anotherDriver, "the driver refuses root GPU %d: %v", gpus[i].Index, err)
		}
	}
}

const anotherDriver = "a driver of docs/supported.md"

// findGPUs makes a client, finds each GPU, and lets go of both.
func findGPUs(control, deviceDir string, gpus []device.GPU) (wrong []error, err error) {
	if file, err := filepath.EvalSymlinks(control); err == nil {
		control = file
	}
	driver, err := channels.Open(control)
	if err != nil {
		return nil, err
	}
	defer driver.Close()
	for _, gpu := range gpus {
		found, err := driver.GPU(gpu.PCIBusID, filepath.Join(deviceDir, fmt.Sprintf("nvidia%d", gpu.Minor)))
		if err == nil {
			found.Close()
		}
		wrong = append(wrong, err)
	}
	return wrong, nil
}
