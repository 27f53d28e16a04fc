// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// key is one key of config.yaml: what it accepts in words, and the same as a check.
type key struct {
	name     string
	accepted string
	valid    func(*Config) bool
	value    func(*Config) any // for Effective
}

const (
	acceptedDir     = "an absolute path"
	acceptedNames   = `a list of names as in Slurm: [rt, inference]; ["*"] is all of them`
	acceptedProgram = "an absolute path of a program"
	// maxRunDir leaves room for a node's name, /pages and a job's number in the limits page (VGPU_PAGES_DIR_BYTES).
	maxRunDir = 90
	// MaxSlicesPerGPU is the most that slices_per_gpu may say.
	MaxSlicesPerGPU = 1000
)

var keys = []key{
	{"run_dir", acceptedDir + " of at most 90 bytes; %n is the node's name", func(c *Config) bool { return isDir(c.RunDir) && len(c.RunDir) <= maxRunDir }, func(c *Config) any { return c.RunDir }},
	{"spool_dir", acceptedDir + "; %n is the node's name", func(c *Config) bool { return isDir(c.SpoolDir) }, func(c *Config) any { return c.SpoolDir }},
	{"library", "an absolute path without blanks, colons and $", func(c *Config) bool { return isPreloadable(c.Library) }, func(c *Config) any { return c.Library }},
	{"isolation", "strict, wall, preload", func(c *Config) bool { return oneOf(c.Isolation, IsolationStrict, IsolationWall, IsolationPreload) }, func(c *Config) any { return c.Isolation }},
	{"on_limit_failure", "closed, open", func(c *Config) bool { return oneOf(c.OnLimitFailure, LimitClosed, LimitOpen) }, func(c *Config) any { return c.OnLimitFailure }},
	{"other_apis", "closed, open", func(c *Config) bool { return oneOf(c.OtherAPIs, OtherClosed, OtherOpen) }, func(c *Config) any { return c.OtherAPIs }},
	{"user_namespaces", "allow, deny", func(c *Config) bool { return oneOf(c.UserNamespaces, UserAllow, UserDeny) }, func(c *Config) any { return c.UserNamespaces }},
	{"on_no_fit", "requeue, fail", func(c *Config) bool { return oneOf(c.OnNoFit, NoFitRequeue, NoFitFail) }, func(c *Config) any { return c.OnNoFit }},
	{"max_requeues", "a whole number from 0 to 1000", func(c *Config) bool { return within(c.MaxRequeues, 0, 1000) }, func(c *Config) any { return c.MaxRequeues }},
	{"slices_per_gpu", "a whole number from 1 to 1000", func(c *Config) bool { return within(c.SlicesPerGPU, 1, MaxSlicesPerGPU) }, func(c *Config) any { return c.SlicesPerGPU }},
	{"mem_overcommit", "a number from 1.0 to 100", func(c *Config) bool { return c.MemOvercommit >= 1 && c.MemOvercommit <= 100 }, func(c *Config) any { return c.MemOvercommit }},
	{"place", "pack, spread", func(c *Config) bool { return oneOf(c.Place, request.PlacePack, request.PlaceSpread) }, func(c *Config) any { return c.Place }},
	{"policy", "cap, elastic", func(c *Config) bool { return oneOf(c.Policy, request.PolicyCap, request.PolicyElastic) }, func(c *Config) any { return c.Policy }},
	{"cheaters", "log, freeze, kill", func(c *Config) bool { return oneOf(c.Cheaters, CheatersLog, CheatersFreeze, CheatersKill) }, func(c *Config) any { return c.Cheaters }},
	{"latency_qos", acceptedNames, func(c *Config) bool { return areNames(c.LatencyQOS) }, func(c *Config) any { return c.LatencyQOS }},
	{"latency_partitions", acceptedNames, func(c *Config) bool { return areNames(c.LatencyPartitions) }, func(c *Config) any { return c.LatencyPartitions }},
	{"latency_per_gpu", "a whole number from 1 to 100", func(c *Config) bool { return within(c.LatencyPerGPU, 1, 100) }, func(c *Config) any { return c.LatencyPerGPU }},
	{"latency_burst", "a time with its unit from 1ms to 10s: 250ms", func(c *Config) bool { return within(c.LatencyBurst, time.Millisecond, 10*time.Second) }, func(c *Config) any { return c.LatencyBurst.String() }},
	{"drain", "a list of device UUIDs, as nvidia-smi -L prints them, or of their beginnings: [GPU-…]", validDrain, func(c *Config) any { return c.Drain }},
	{"whole_gpus", "true, false; not beside slurm_gpus or shards", validSlurmGPUs, func(c *Config) any { return c.WholeGPUs }},
	{"slurm_gpus", "a list of the N of /dev/nvidiaN: [0, 1]; not beside whole_gpus or shards", validSlurmGPUs, func(c *Config) any { return c.SlurmGPUs }},
	{"shards", "true, false; not beside whole_gpus or slurm_gpus", validSlurmGPUs, func(c *Config) any { return c.Shards }},
	{"without_slice", `"" (mask with whole_gpus, slurm_gpus, shards or device_files: closed, else leave), leave (not with device_files: closed), mask`, validWithoutSlice, func(c *Config) any { return c.WithoutSlice }},
	{"device_dir", acceptedDir, func(c *Config) bool { return isDir(c.DeviceDir) }, func(c *Config) any { return c.DeviceDir }},
	{"device_files", "open, closed", func(c *Config) bool { return oneOf(c.DeviceFiles, FilesOpen, FilesClosed) }, func(c *Config) any { return c.DeviceFiles }},
	{"device_group", `"" (root alone), a group, by name or number`, func(c *Config) bool { return !strings.ContainsAny(c.DeviceGroup, ": \t\n\x00") }, func(c *Config) any { return c.DeviceGroup }},
	{"nvml_library", `"" (libnvidia-ml.so.1), a file name that the dynamic linker finds, or an absolute path`, validNVML, func(c *Config) any { return c.NVMLLibrary }},
	{"audit", "off, log, cancel", func(c *Config) bool { return oneOf(c.Audit, AuditOff, AuditLog, AuditCancel) }, func(c *Config) any { return c.Audit }},
	{"audit_ignore", "a list of users, by name or number: [root, gdm]", validUsers, func(c *Config) any { return c.AuditIgnore }},
	{"accounting_field", "admin_comment, extra, none", func(c *Config) bool { return oneOf(c.AccountingField, FieldAdminComment, FieldExtra, FieldNone) }, func(c *Config) any { return c.AccountingField }},
	{"idle_after", "0s (never), or a time with its unit from 1m to 8760h: 30m, 2h", validIdle, func(c *Config) any { return c.IdleAfter.String() }},
	{"idle_action", "report, cancel", func(c *Config) bool { return oneOf(c.IdleAction, IdleReport, IdleCancel) }, func(c *Config) any { return c.IdleAction }},
	{"metrics_users", "true, false", func(*Config) bool { return true }, func(c *Config) any { return c.MetricsUsers }},
	{"dcgm_job_map", `"" (none) or ` + acceptedDir, func(c *Config) bool { return c.DCGMJobMap == "" || isDir(c.DCGMJobMap) }, func(c *Config) any { return c.DCGMJobMap }},
	{"log.level", `"" (info to a file, warn to stderr), trace, debug, info, warn, error, off`, validLevel, func(c *Config) any { return c.Log.Level }},
	{"log.format", "text, json", func(c *Config) bool { return oneOf(c.Log.Format, FormatText, FormatJSON) }, func(c *Config) any { return c.Log.Format }},
	{"log.file", `"" (stderr) or an absolute path`, func(c *Config) bool { return c.Log.File == "" || isDir(c.Log.File) }, func(c *Config) any { return c.Log.File }},
	{"slurm.scontrol", acceptedProgram, func(c *Config) bool { return isDir(c.Slurm.Scontrol) }, func(c *Config) any { return c.Slurm.Scontrol }},
	{"slurm.sacctmgr", acceptedProgram, func(c *Config) bool { return isDir(c.Slurm.Sacctmgr) }, func(c *Config) any { return c.Slurm.Sacctmgr }},
	{"slurm.sacct", acceptedProgram, func(c *Config) bool { return isDir(c.Slurm.Sacct) }, func(c *Config) any { return c.Slurm.Sacct }},
	{"slurm.squeue", acceptedProgram, func(c *Config) bool { return isDir(c.Slurm.Squeue) }, func(c *Config) any { return c.Slurm.Squeue }},
	{"slurm.scancel", acceptedProgram, func(c *Config) bool { return isDir(c.Slurm.Scancel) }, func(c *Config) any { return c.Slurm.Scancel }},
	{"slurm.slurmd_spool_dir", acceptedDir + "; %n is the node's name, %h the host's", func(c *Config) bool { return isDir(c.Slurm.SlurmdSpoolDir) }, func(c *Config) any { return c.Slurm.SlurmdSpoolDir }},
	{"slurm.controller_timeout", "a time with its unit from 1s to 1h: 60s, 2m", func(c *Config) bool { return within(c.Slurm.ControllerTimeout, time.Second, time.Hour) }, func(c *Config) any { return c.Slurm.ControllerTimeout.String() }},
	{"report.enabled", "true, false", func(*Config) bool { return true }, func(c *Config) any { return c.Report.Enabled }},
	{"report.retry_for", "a time with its unit from 1s to 8760h: 30m, 24h", func(c *Config) bool { return within(c.Report.RetryFor, time.Second, 8760*time.Hour) }, func(c *Config) any { return c.Report.RetryFor.String() }},
}

func keyByName(name string) (key, bool) {
	i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
	if i < 0 {
		return key{}, false
	}
	return keys[i], true
}

// gone are keys that an earlier build had, and why they are not there.
var gone = map[string]string{"shares_by": "as vgpud keeps all shares of GPU time"}

func isSection(name string) bool {
	return slices.ContainsFunc(keys, func(k key) bool { return strings.HasPrefix(k.name, name+".") })
}

// accepts lists the keys that could have been meant: those of the same section.
func accepts(name string) string {
	section, _, nested := strings.Cut(name, ".")
	var names []string
	for _, k := range keys {
		if s, _, n := strings.Cut(k.name, "."); n && s == section {
			names = append(names, k.name)
		}
	}
	if !nested && len(names) > 0 { // a section was given a plain value
		return section + " is a section: " + strings.Join(names, ", ")
	}
	if len(names) == 0 && suggestion(name) == "" { // who is near a key needs no list of all
		for _, k := range keys {
			names = append(names, k.name)
		}
	}
	return strings.Join(names, ", ")
}

// suggestion names the key that a typo most likely meant, or one that begins with what was written.
func suggestion(name string) string {
	begins := func(k key) bool { return name != "" && strings.HasPrefix(k.name, name+"_") }
	if i := slices.IndexFunc(keys, begins); i >= 0 {
		return " (did you mean " + keys[i].name + "?)"
	}
	best, bestDistance := "", 4
	for _, k := range keys {
		if d := distance(name, k.name); d < bestDistance {
			best, bestDistance = k.name, d
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}

// distance counts the letters to insert, delete or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, cost)
		}
	}
	return row[len(b)]
}

func oneOf[T comparable](value T, accepted ...T) bool { return slices.Contains(accepted, value) }

func within[T int | time.Duration](value, low, high T) bool { return value >= low && value <= high }

func isDir(path string) bool {
	return filepath.IsAbs(path) && !strings.ContainsAny(path, "\x00\n")
}

// isPreloadable: ld.so splits /etc/ld.so.preload and LD_PRELOAD at blanks and colons and expands $ORIGIN.
func isPreloadable(path string) bool {
	return filepath.IsAbs(path) && !strings.ContainsAny(path, " \t\r\n:$\x00")
}

func validNVML(c *Config) bool {
	return filepath.IsAbs(c.NVMLLibrary) || !strings.Contains(c.NVMLLibrary, "/")
}

func validLevel(c *Config) bool {
	return c.Log.Level == "" || hclog.LevelFromString(c.Log.Level) != hclog.NoLevel
}

func validSlurmGPUs(c *Config) bool {
	for _, n := range c.SlurmGPUs {
		if !within(n, 0, 1023) {
			return false
		}
	}
	// one of the three at most
	return !(c.WholeGPUs && c.Shards) && (len(c.SlurmGPUs) == 0 || !c.WholeGPUs && !c.Shards)
}

// validWithoutSlice: what is closed on the node cannot be left to jobs that nobody opens it for. Keys are read in the order
// of the alphabet, so that device_files is known.
func validWithoutSlice(c *Config) bool {
	return oneOf(c.WithoutSlice, "", WithoutMask) || c.WithoutSlice == WithoutLeave && c.DeviceFiles != FilesClosed
}

func validDrain(c *Config) bool {
	for _, uuid := range c.Drain {
		if !strings.HasPrefix(string(uuid), "GPU-") && !strings.HasPrefix(string(uuid), "MIG-") {
			return false
		}
	}
	return true
}

func validIdle(c *Config) bool {
	return c.IdleAfter == 0 || within(c.IdleAfter, time.Minute, 8760*time.Hour)
}

func validUsers(c *Config) bool { return areWords(c.AuditIgnore) }

func areWords(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return name == "" || strings.ContainsAny(name, " \t\n\x00") })
}

// areNames: what stands beside "*", and what Slurm takes for no name or for several, is a mistake.
func areNames(names []string) bool {
	odd := slices.ContainsFunc(names, func(name string) bool { return name != AnyName && strings.ContainsAny(name, "*,=()\"") })
	return areWords(names) && !odd && (len(names) < 2 || !slices.Contains(names, AnyName))
}
