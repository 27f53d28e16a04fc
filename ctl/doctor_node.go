// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
	"github.com/slurm-vgpu/slurm-vgpu/internal/driver"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/report"
	"github.com/slurm-vgpu/slurm-vgpu/internal/sitecheck"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmdb"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
	"github.com/slurm-vgpu/slurm-vgpu/internal/version"
)

const inventoryRemedy = "vgpu-gres inventory --write"

// gpus compares the inventory that the prolog reads with what NVML says now.
func (d *doctor) gpus() {
	path := d.config.Run().Inventory()
	inv, err := inventory.Read(path)
	switch {
	case err != nil:
		d.Bad("inventory", inventoryRemedy, "%v", err)
	case inv.BootID != d.bootID:
		d.Bad("inventory", inventoryRemedy, "%s is of an earlier boot", path)
	default:
		d.inventory = &inv
		d.OK("inventory", "%s lists %s", path, plural(len(inv.GPUs), "GPU"))
	}
	lib, err := discover.Library(d.config.NVMLLibrary)
	var now device.Inventory
	if err == nil {
		now, err = discover.Inventory(lib)
	}
	if err != nil {
		d.Bad("NVML", "install the NVIDIA driver, load its module (nvidia-smi must work), or name its library in nvml_library", "%v", err)
		return
	}
	healthy := true
	now = inventory.Leave(now, d.config.SlurmGPUs)
	gpus := now.GPUs
	if d.inventory != nil {
		written := inventory.Leave(*d.inventory, d.config.SlurmGPUs)
		renewed, changed := inventory.Renew(written, now, time.Now())
		gpus = renewed.GPUs // they have their UUIDs there
		switch {
		case inventory.IsOfOthers(written, now):
			healthy = false
			d.Bad("NVML", inventoryRemedy, "the GPUs have changed since the inventory was written")
		case len(changed) > 0:
			healthy = false
			d.Bad("NVML", "vgpuctl health, and see that vgpud runs, which does it every two minutes", "the inventory does not say yet which GPUs have failed or are back")
		}
	}
	for _, gpu := range gpus {
		if gpu.Lost != "" && gpu.Lost != inventory.SlurmsOwn {
			healthy = false
			d.Bad("NVML", "nvidia-smi -q -i "+fmt.Sprint(gpu.Index)+" and the kernel's log (Xid) tell more; no new job is placed on it", "GPU %d (%s): %s", gpu.Index, gpu.UUID, gpu.Lost)
		}
	}
	if healthy {
		d.OK("NVML", "driver %s, %s, all usable", now.DriverVersion, plural(len(now.GPUs), "GPU"))
	}
}

// driver looks for the files that guards stand over.
func (d *doctor) driver() {
	if !d.config.IsStrict() {
		return
	}
	libraries, err := driver.Find(driver.Cache)
	if err != nil {
		d.Bad("guards", "make it root's, writable by root alone, and run ldconfig", "%v", err)
		return
	}
	var files []string
	for _, library := range libraries {
		files = append(files, library.File)
	}
	if len(files) == 0 {
		d.Bad("guards", "ldconfig, so that the driver is in its cache", "the dynamic linker's cache has no driver for guards to stand over")
		return
	}
	d.OK("guards", "they stand over %s", strings.Join(files, ", "))
}

// deviceNodes looks for the files that strict isolation masks.
func (d *doctor) deviceNodes() {
	if d.inventory == nil {
		return
	}
	for _, gpu := range d.inventory.GPUs {
		path := filepath.Join(d.config.DeviceDir, "nvidia"+strconv.Itoa(int(gpu.Minor)))
		if _, err := os.Stat(path); err != nil && gpu.Lost == "" {
			d.Bad("device nodes", "nvidia-modprobe -c "+strconv.Itoa(int(gpu.Minor))+", or name the folder in device_dir", "GPU %d: %v", gpu.Index, err)
			return
		}
	}
	d.OK("device nodes", "every GPU has its node in %s", d.config.DeviceDir)
}

// state holds the state file and the jobs' folders against each other.
func (d *doctor) state() {
	const remedy = "nothing if it is gone after the next job; else look into the log of vgpu-prolog"
	dir := d.config.Run()
	store := state.Of(d.config, d.bootID, hclog.NewNullLogger())
	current, err := store.Read()
	if err != nil {
		d.Bad("state", "the next vgpu-prolog moves it aside and rebuilds it from the jobs that live", "%v", err)
		return
	}
	held := make(map[uint32]bool)
	healthy := true
	for _, s := range current.Slices {
		held[s.Job] = true
		g, err := grant.Read(dir.Grant(s.Job))
		switch {
		case err != nil:
			healthy = false
			d.Bad("state", remedy, "job %d holds a slice of GPU %d and its grant cannot be read: %v", s.Job, s.Index, err)
		case !g.Whole && !isThere(dir.Ledger(s.Job)):
			healthy = false
			d.Bad("state", "if slurmd's unit, or this shell, has mounts of its own (PrivateTmp=, ProtectSystem= and the like; pam_namespace), that is why: USED and GPU time come from there",
				"the ledger of job %d is not seen from here", s.Job)
		case g.Restart != s.Restart || !slices.Contains(g.Slices, s.Slice):
			healthy = false
			d.Bad("state", "if `vgpuctl set` was interrupted, give it again; else look into the log of vgpu-prolog", "job %d holds %d MiB of GPU %d in the state file and something else in its grant", s.Job, s.MemMiB, s.Index)
		}
	}
	entries, err := os.ReadDir(dir.Jobs())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.Bad("state", "run it as root", "%v", err)
		return
	}
	for _, entry := range entries {
		job, err := strconv.ParseUint(entry.Name(), 10, 32)
		if err != nil || held[uint32(job)] {
			continue
		}
		if g, err := grant.Read(dir.Grant(uint32(job))); err == nil && g.Refusal == "" && !(g.Whole && len(g.Slices) == 0) {
			healthy = false
			d.Bad("state", remedy, "job %d has a grant and no slice in the state file", job)
		}
	}
	if healthy {
		d.OK("state", "%s in %s", plural(len(current.Slices), "slice"), dir.State())
	}
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// library checks libslurm-vgpu.so as the dynamic linker of a job would.
func (d *doctor) library(ctx context.Context) {
	const check = "library"
	path := d.config.Library
	info, err := os.Stat(path)
	if err != nil {
		d.Bad(check, "install libslurm-vgpu.so there, or name it in library", "%v", err)
		return
	}
	st, _ := info.Sys().(*syscall.Stat_t)
	if st == nil || st.Uid != 0 && int(st.Uid) != os.Geteuid() || info.Mode()&0o022 != 0 || info.Mode()&0o444 != 0o444 {
		d.Bad(check, "chown root:root "+path+" && chmod 644 "+path, "%s must be root's, readable by all and writable by root alone (mode %#o)", path, info.Mode().Perm())
		return
	}
	file, err := elf.Open(path)
	if err != nil {
		d.Bad(check, "install it again", "%s is no shared library: %v", path, err)
		return
	}
	file.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/true")
	cmd.Env = []string{"LD_PRELOAD=" + path}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil || errs.Len() > 0 { // the linker only prints when it cannot preload
		d.Bad(check, "install one that was built for this machine", "/bin/true with %s: %v %s", path, err, strings.TrimSpace(errs.String()))
		return
	}
	number, err := version.Of(path)
	switch {
	case err != nil:
		d.Bad(check, "install it again", "%v", err)
	case version.Differs(number):
		d.Bad(check, version.Remedy, "%s is of version %s, vgpuctl of %s", path, number, version.Number)
	default:
		d.OK(check, "%s can be loaded, version %s", path, number)
	}
}

// isolation tries what the plugin does for a task.
func (d *doctor) isolation(ctx context.Context) {
	if !d.config.IsStrict() {
		d.OK("isolation", "preload, as config.yaml says")
		return
	}
	const preload = "/etc/ld.so.preload"
	switch info, err := os.Lstat(preload); {
	case errors.Is(err, fs.ErrNotExist):
		d.OK("ld.so.preload", "%s is not there; vgpu-prolog makes an empty one", preload)
	case err != nil:
		d.Bad("ld.so.preload", "make it a regular file of root's", "%v", err)
	case !info.Mode().IsRegular() || info.Mode()&0o022 != 0:
		d.Bad("ld.so.preload", "make it a regular file, mode 644", "%s has mode %v", preload, info.Mode())
	default:
		if data, err := os.ReadFile(preload); err == nil && strings.Contains(string(data), d.config.Library) {
			d.Bad("ld.so.preload", "take it out: the plugin binds a file of its own for each task", "%s names %s for every process of the node", preload, d.config.Library)
		} else {
			d.OK("ld.so.preload", "%s can be bound over", preload)
		}
	}
	if os.Geteuid() != 0 {
		d.Warn("namespaces", asRoot, "not checked: needs root")
		return
	}
	cmd := exec.CommandContext(ctx, "/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if err := cmd.Run(); err != nil {
		d.Bad("namespaces", "allow root mount namespaces (a container needs CAP_SYS_ADMIN), or set isolation: preload", "a private mount namespace: %v", err)
		return
	}
	d.OK("namespaces", "a task can have its own mount namespace")
}

// userNamespaces: where the kernel takes no filter, no step with slices would start.
func (d *doctor) userNamespaces() {
	if !d.config.IsStrict() || d.config.UserNamespaces != config.UserDeny {
		return
	}
	const actions = "/proc/sys/kernel/seccomp/actions_avail"
	switch data, err := os.ReadFile(actions); {
	case runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64":
		d.Bad("user namespaces", "user_namespaces: allow", "they cannot be denied on %s", runtime.GOARCH)
	case err != nil || !slices.Contains(strings.Fields(string(data)), "errno"):
		d.Bad("user namespaces", "a kernel with CONFIG_SECCOMP_FILTER, or user_namespaces: allow", "%s names no errno", actions)
	default:
		d.OK("user namespaces", "denied to steps with slices")
	}
}

// slurm holds Slurm's files against what this node needs.
func (d *doctor) slurm(ctx context.Context, site sitecheck.Site) {
	for _, path := range []string{d.config.Slurm.Scontrol, d.config.Slurm.Squeue, d.config.Slurm.Sacct, d.config.Slurm.Sacctmgr} {
		if info, err := os.Stat(path); err != nil {
			d.Bad("commands", "name it in the slurm: section of the configuration", "%v", err)
		} else if info.Mode()&0o111 == 0 {
			d.Bad("commands", "chmod 755 "+path, "%s is not executable", path)
		}
	}
	site.Inventory = d.inventory
	site.Version = sitecheck.RunningVersion(ctx, d.config.Slurm.Scontrol, site.SlurmConf)
	site.Database = sitecheck.LocalDatabase(ctx, sitecheck.MariaDB)
	findings, err := site.Check()
	if err != nil {
		d.Bad("slurm.conf", "name it with --slurm-conf or SLURM_CONF", "%v", err)
		return
	}
	d.Findings = append(d.Findings, findings...)
}

// How long a report may wait before that is worth a look, and before it is a fault: slurmdbd restarts take minutes.
const (
	slowReport = 10 * time.Minute
	backlogAge = time.Hour
)

// accounting asks slurmdbd for something: reports are written there from this node. `sacctmgr ping` (24.11) does not say whether the
// database behind it answers.
func (d *doctor) accounting(ctx context.Context, slurmConf string) {
	const check = "slurmdbd"
	if report.Enabled(d.config) != nil {
		return
	}
	if err := sitecheck.AskAccounting(ctx, d.config.Slurm.Sacctmgr, slurmConf); err != nil {
		d.Bad(check, "systemctl status slurmdbd and its database where they run, and its port (DbdPort) from here; reports wait on this node until then", "it does not answer: %v", err)
		return
	}
	d.OK(check, "it answers")
}

// reports is about the way into the accounting database.
func (d *doctor) reports(ctx context.Context) {
	if err := report.Enabled(d.config); err != nil {
		d.OK("reports", "%v: usage stays in %s", err, d.config.Spool().History())
		return
	}
	if d.config.AccountingField == config.FieldExtra && !slurmdb.HasExtra() {
		d.Bad("reports", "accounting_field: admin_comment in config.yaml, or Slurm 23.02", "accounting_field is extra, which this release of Slurm has not")
		return
	}
	library, err := slurmdb.Library(ctx, d.config.Slurm.Sacctmgr)
	if err != nil {
		d.OK("report writer", "sacctmgr writes reports; it turns quotes into ` and letters into lower case (%v)", err)
	} else {
		d.OK("report writer", "reports are written through %s", library)
	}
	records, bad, err := usage.List(d.config.Spool())
	var waited time.Duration
	if len(records) > 0 {
		waited = trusted.Age(records[0].End)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		d.Warn("reports", asRoot, "not checked: needs root")
	case err != nil:
		d.Bad("reports", "make it readable", "%v", err)
	case len(bad) > 0:
		d.Bad("reports", "vgpuctl records --flush moves it aside", "%s in the spool is no usage record", bad[0])
	case waited > slowReport && waited <= backlogAge:
		d.Warn("reports", "vgpuctl records --flush, and see that vgpud runs", "%s, the oldest for %s", plural(len(records), "waiting record"), age(waited))
	case waited > backlogAge:
		d.Bad("reports", "vgpuctl records --flush, and `sacctmgr -n list cluster` or slurmdbd's log if that does not help",
			"%s, the oldest for %s", plural(len(records), "waiting record"), age(waited))
	default:
		d.OK("reports", "%s", plural(len(records), "waiting record"))
	}
}
