// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package config reads config.yaml, the one configuration file of every binary.
//
// The file must be a trusted one (package trusted); the environment is never looked at. A missing
// file means the defaults. Where it is not right all go by the last good copy (LoadHeld), but for what prints lines for other files (Load).
package config

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/devfiles"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// DefaultPath is where the binaries look unless --config names another file.
const DefaultPath = "/etc/slurm-vgpu/config.yaml"

// Values of isolation, on_limit_failure, other_apis, user_namespaces, on_no_fit, without_slice, device_files, audit,
// accounting_field, idle_action and log.format.
const (
	IsolationWall    = "wall"    // strict, and the driver holds each job's cgroup to its memory
	IsolationStrict  = "strict"  // private mount namespace, ld.so.preload bound, other GPUs masked
	IsolationPreload = "preload" // LD_PRELOAD in the environment only
	LimitClosed      = "closed"  // a limit that cannot be looked up stops the program
	LimitOpen        = "open"    // … lets it run unlimited
	OtherClosed      = "closed"  // in a slice the GPU has CUDA and nothing else
	OtherOpen        = "open"    // … OpenCL, Vulkan and OpenGL as well, without limits
	UserAllow        = "allow"   // processes of a slice may make user namespaces
	UserDeny         = "deny"    // … may not
	NoFitRequeue     = "requeue" // a batch job that fits no GPU goes back into the queue
	NoFitFail        = "fail"    // … fails with the reason
	WithoutLeave     = "leave"   // a job without a slice has every GPU
	WithoutMask      = "mask"    // … none of those that slices are placed on
	FilesOpen        = "open"    // everybody may open the GPUs' device files, outside of steps
	FilesClosed      = "closed"  // … nobody but root and device_group
	AuditOff         = "off"     // nobody looks for stray use of GPUs
	AuditLog         = "log"     // … it is logged
	AuditCancel      = "cancel"  // … and its job cancelled
	CheatersLog      = "log"     // who gets around his weight is logged
	CheatersFreeze   = "freeze"  // … and his step frozen for ten seconds; the third time all steps of his job killed
	CheatersKill     = "kill"    // … and his step killed
	IdleReport       = "report"  // an idle slice is logged
	IdleCancel       = "cancel"  // … and a job that has no other slices cancelled
	FormatText       = "text"
	FormatJSON       = "json"
	AnyName          = "*" // in latency_qos and latency_partitions: every one

	FieldAdminComment = "admin_comment" // usage goes into a job's AdminComment, or into Extra where that is jobstats'
	FieldExtra        = "extra"         // … into its Extra
	FieldNone         = "none"          // … stays on the node
)

// Config is config.yaml: what its fields mean stands in their keys' rows (keys). The zero value is not usable: start from Default.
type Config struct {
	RunDir         string
	SpoolDir       string
	Library        string
	Isolation      string
	OnLimitFailure string
	OtherAPIs      string
	UserNamespaces string
	OnNoFit        string
	MaxRequeues    int
	SlicesPerGPU   int
	Sizes          map[string]map[string]any // as written; NamedSizes reads them
	MemOvercommit  float64
	Place          request.Place
	Policy         request.Policy
	Cheaters       string
	Drain          []device.UUID
	WholeGPUs      bool
	SlurmGPUs      []int
	Shards         bool
	ShardsSaid     bool // the file has that key: vgpu-gres goes by it, and else by the release of Slurm
	WithoutSlice   string
	DeviceDir      string
	DeviceFiles    string
	DeviceGroup    string
	NVMLLibrary    string
	Audit          string
	AuditIgnore    []string

	AccountingField string
	IdleAfter       time.Duration
	IdleAction      string
	MetricsUsers    bool
	DCGMJobMap      string

	LatencyQOS        []string
	LatencyPartitions []string
	LatencyPerGPU     int
	LatencyBurst      time.Duration

	Log    Log
	Slurm  Slurm
	Report Report
}

// Log says where a binary's log goes.
type Log struct {
	Level  string
	Format string
	File   string
}

// Slurm says how to reach Slurm's commands.
type Slurm struct {
	Scontrol          string
	Sacctmgr          string
	Sacct             string
	Squeue            string
	Scancel           string
	SlurmdSpoolDir    string
	ControllerTimeout time.Duration
}

// Report says whether and how long a usage record is tried to be written to the accounting database.
type Report struct {
	Enabled  bool
	RetryFor time.Duration
}

// Default is the configuration of an empty file: everything as safe as it can be.
func Default() Config {
	var c Config
	for _, key := range keys {
		key.reset(&c)
	}
	return c
}

// IsStrict says that steps have mount namespaces of their own.
func (c Config) IsStrict() bool {
	return c.Isolation == IsolationStrict || c.Isolation == IsolationWall
}

// MasksOthers says whether a job may open none of the GPUs that it was not given.
func (c Config) MasksOthers() bool {
	if c.WithoutSlice == "" {
		return c.WholeGPUs || c.Shards || len(c.SlurmGPUs) > 0 || c.ClosesFiles()
	}
	return c.WithoutSlice == WithoutMask
}

// Drains says whether this GPU gets no new slice.
func (c Config) Drains(gpu device.GPU) bool {
	return slices.ContainsFunc(c.Drain, func(name device.UUID) bool { return request.NamesUUID(name, gpu.UUID) })
}

// MayGoFirst says whether jobs of a QOS and a partition may have slices of priority latency; both as Slurm says of a job. Slurm keeps
// names of QOS in lower case.
func (c Config) MayGoFirst(qos, partition string) bool {
	admits := func(names []string, name string, same func(a, b string) bool) bool {
		return slices.ContainsFunc(names, func(n string) bool { return n == AnyName || name != "" && same(n, name) })
	}
	return admits(c.LatencyQOS, qos, strings.EqualFold) || admits(c.LatencyPartitions, partition, func(a, b string) bool { return a == b })
}

// Drained are the GPUs that a name in drain stands for.
func Drained(name device.UUID, inv device.Inventory) (named []device.UUID) {
	for _, gpu := range inv.GPUs {
		if request.NamesUUID(name, gpu.UUID) {
			named = append(named, gpu.UUID)
		}
	}
	return named
}

// ClosesFiles says whether the GPUs' device files are closed. Without a mount namespace no step could be given its own.
func (c Config) ClosesFiles() bool {
	return c.DeviceFiles == FilesClosed && c.IsStrict()
}

// DeviceSet is the device files of the node's GPUs.
func (c Config) DeviceSet() devfiles.Set {
	set := devfiles.Set{Dir: c.DeviceDir, StepDir: rundir.StepDevices(c.DeviceDir), Leave: c.SlurmGPUs, Group: c.DeviceGroup}
	if c.DeviceDir == Default().DeviceDir {
		set.Proc = "/proc"
	}
	return set
}

// Run is the run directory.
func (c Config) Run() rundir.Dir { return rundir.Dir(c.RunDir) }

// Spool is the spool directory.
func (c Config) Spool() rundir.Spool { return rundir.Spool(c.SpoolDir) }

// ForNode returns the configuration with %n and %h of its directories replaced, as slurmd does
// it: %n by the node's name, %h by the short host name.
func (c Config) ForNode(node string) Config {
	host := shortHostname()
	if node == "" {
		node = host
	}
	// A name that reached us through an environment must not lead out of the folder.
	node = strings.ReplaceAll(node, "/", "_")
	replace := strings.NewReplacer("%n", node, "%h", host)
	c.RunDir = replace.Replace(c.RunDir)
	c.SpoolDir = replace.Replace(c.SpoolDir)
	c.DCGMJobMap = replace.Replace(c.DCGMJobMap)
	c.Slurm.SlurmdSpoolDir = replace.Replace(c.Slurm.SlurmdSpoolDir)
	return c
}

// NodeName is this node's name in Slurm: SLURMD_NODENAME as slurmd sets it for its prolog, epilog
// and steps, else the short host name.
func NodeName() string {
	if node := os.Getenv("SLURMD_NODENAME"); node != "" { //nolint:forbidigo // slurmd sets it
		return node
	}
	return shortHostname()
}

func shortHostname() string {
	host, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	host, _, _ = strings.Cut(host, ".")
	return host
}
