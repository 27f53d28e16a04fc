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
	"github.com/slurm-vgpu/slurm-vgpu/internal/installed"
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

// Config is config.yaml. The zero value is not usable: start from Default.
type Config struct {
	RunDir         string         `mapstructure:"run_dir"`          // %n is the node's name
	SpoolDir       string         `mapstructure:"spool_dir"`        // %n is the node's name
	Library        string         `mapstructure:"library"`          // libslurm-vgpu.so
	Isolation      string         `mapstructure:"isolation"`        // strict | wall | preload
	OnLimitFailure string         `mapstructure:"on_limit_failure"` // closed | open
	OtherAPIs      string         `mapstructure:"other_apis"`       // closed | open; strict isolation only
	UserNamespaces string         `mapstructure:"user_namespaces"`  // allow | deny; strict isolation only
	OnNoFit        string         `mapstructure:"on_no_fit"`        // requeue | fail
	MaxRequeues    int            `mapstructure:"max_requeues"`     // restarts after which a job that fits nowhere fails
	SlicesPerGPU   int            `mapstructure:"slices_per_gpu"`   // at most so many slices on one GPU
	MemOvercommit  float64        `mapstructure:"mem_overcommit"`   // 1.0: a GPU's slices together are never more than it has
	Place          request.Place  `mapstructure:"place"`            // pack | spread, for jobs that do not say
	Policy         request.Policy `mapstructure:"policy"`           // cap | elastic, for jobs that do not say
	Cheaters       string         `mapstructure:"cheaters"`         // log | freeze | kill
	Drain          []device.UUID  `mapstructure:"drain"`            // GPUs that get no new slice, by UUID or its beginning
	WholeGPUs      bool           `mapstructure:"whole_gpus"`       // Slurm's gres/gpu are GPUs that the prolog places, whole
	SlurmGPUs      []int          `mapstructure:"slurm_gpus"`       // the N of /dev/nvidiaN that Slurm hands out by itself
	Shards         bool           `mapstructure:"shards"`           // Slurm picks the GPUs, by gres/gpu and gres/shard of one MiB each
	WithoutSlice   string         `mapstructure:"without_slice"`    // leave | mask; "": see MasksOthers
	DeviceDir      string         `mapstructure:"device_dir"`       // where nvidiaN stand
	DeviceFiles    string         `mapstructure:"device_files"`     // open | closed; strict isolation only
	DeviceGroup    string         `mapstructure:"device_group"`     // that may open closed files; "": root alone
	NVMLLibrary    string         `mapstructure:"nvml_library"`     // "": libnvidia-ml.so.1
	Audit          string         `mapstructure:"audit"`            // off | log | cancel
	AuditIgnore    []string       `mapstructure:"audit_ignore"`     // users whose processes are no strays, by name or number

	AccountingField string        `mapstructure:"accounting_field"` // admin_comment | extra | none
	IdleAfter       time.Duration `mapstructure:"idle_after"`       // a slice without GPU time for so long is idle; 0: never
	IdleAction      string        `mapstructure:"idle_action"`      // report | cancel
	MetricsUsers    bool          `mapstructure:"metrics_users"`    // metrics name users and accounts
	DCGMJobMap      string        `mapstructure:"dcgm_job_map"`     // "": none; where DCGM's exporter learns which jobs a GPU has

	LatencyQOS        []string      `mapstructure:"latency_qos"`        // may have --vgpu-priority=latency; AnyName: all
	LatencyPartitions []string      `mapstructure:"latency_partitions"` // … as well
	LatencyPerGPU     int           `mapstructure:"latency_per_gpu"`    // at most so many such slices on one GPU
	LatencyBurst      time.Duration `mapstructure:"latency_burst"`      // GPU time that one may have at once before others

	Log    Log    `mapstructure:"log"`
	Slurm  Slurm  `mapstructure:"slurm"`
	Report Report `mapstructure:"report"`
}

// Log says where a binary's log goes.
type Log struct {
	Level  string `mapstructure:"level"`  // "": info to a file, warn to stderr
	Format string `mapstructure:"format"` // text | json
	File   string `mapstructure:"file"`   // "": stderr
}

// Slurm says how to reach Slurm's commands.
type Slurm struct {
	Scontrol          string        `mapstructure:"scontrol"`
	Sacctmgr          string        `mapstructure:"sacctmgr"`
	Sacct             string        `mapstructure:"sacct"`
	Squeue            string        `mapstructure:"squeue"`
	Scancel           string        `mapstructure:"scancel"`
	SlurmdSpoolDir    string        `mapstructure:"slurmd_spool_dir"`   // %n node name, %h host name, as in slurm.conf
	ControllerTimeout time.Duration `mapstructure:"controller_timeout"` // all tries together
}

// Report says whether and how long a usage record is tried to be written to the accounting database.
type Report struct {
	Enabled  bool          `mapstructure:"enabled"`
	RetryFor time.Duration `mapstructure:"retry_for"`
}

// Default is the configuration of an empty file: everything as safe as it can be.
func Default() Config {
	return Config{
		RunDir:         rundir.Default,
		SpoolDir:       rundir.DefaultSpool,
		Library:        installed.Usual("libslurm-vgpu.so"),
		Isolation:      IsolationStrict,
		OnLimitFailure: LimitClosed,
		OtherAPIs:      OtherClosed,
		UserNamespaces: UserAllow,
		OnNoFit:        NoFitRequeue,
		MaxRequeues:    5,
		SlicesPerGPU:   10,
		MemOvercommit:  1.0,
		Place:          request.PlacePack,
		Policy:         request.PolicyCap,
		Cheaters:       CheatersFreeze,
		LatencyPerGPU:  1,
		LatencyBurst:   250 * time.Millisecond,
		DeviceDir:      "/dev",
		DeviceFiles:    FilesOpen,
		Audit:          AuditLog,
		AuditIgnore:    []string{"root"},

		AccountingField: FieldAdminComment,
		IdleAction:      IdleReport,
		MetricsUsers:    true,

		Log: Log{Format: FormatText},
		Slurm: Slurm{
			Scontrol:          "/usr/bin/scontrol",
			Sacctmgr:          "/usr/bin/sacctmgr",
			Sacct:             "/usr/bin/sacct",
			Squeue:            "/usr/bin/squeue",
			Scancel:           "/usr/bin/scancel",
			SlurmdSpoolDir:    "/var/spool/slurmd",
			ControllerTimeout: time.Minute,
		},
		Report: Report{Enabled: true, RetryFor: 24 * time.Hour},
	}
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
