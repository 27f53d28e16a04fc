// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"github.com/hashicorp/go-hclog"
)

// watchKeys are what is looked at and written down.
var watchKeys = []Key{
	{
		Name: "audit", Section: "Audit",
		Meaning: []string{"The answer to use of GPUs that no slice accounts for, as `vgpuctl audit` shows it (vgpuctl(1)). vgpud(8) has it looked for every two minutes, and after each job that had a slice here."},
		kind: choice(func(c *Config) *string { return &c.Audit }, AuditLog,
			Word{AuditOff, []string{"Nothing looks by itself."}},
			Word{AuditLog, []string{"It is logged."}},
			Word{AuditCancel, []string{"It is logged, and the job of these processes is cancelled with a word to its user.",
				"Of an array a task alone, a heterogeneous job as a whole. A process of no job that is known is only logged, and so is a process that holds more than its " +
					"ledger says in a job that keeps within its slice."}}),
	},
	{
		Name: "audit_ignore", Section: "Audit",
		Meaning: []string{
			"Users of services that use GPUs outside of jobs, by name or number: [root, gdm].",
			"Their processes are no stray use where they run beside containers: services that draw or watch, such as a display manager. In a container their processes are counted like all others.",
		},
		kind: list(func(c *Config) *[]string { return &c.AuditIgnore }, []string{"root"}, "list of users", "a list of users, by name or number: [root, gdm]", areWords),
	},
	{
		Name: "idle_after", Section: "Idle slices",
		Meaning: []string{
			"A slice that has had no GPU time for so long, as `vgpuctl sample` sees it, is idle: 30m, 2h. 0s: idle slices are not looked for.",
			"A time from `1m` to `8760h`. It takes vgpud(8) to be seen. GPU time is what vgpud(8) counts: while that is away, or does not see a process " +
				"of the job, no slice is idle.",
		},
		kind: of(func(c *Config) *time.Duration { return &c.IdleAfter }, 0, "time", "0s (never), or a time with its unit from 1m to 8760h: 30m, 2h",
			func(d time.Duration) bool { return d == 0 || within(d, time.Minute, 8760*time.Hour) }),
	},
	{
		Name: "idle_action", Section: "Idle slices",
		Meaning: []string{"The answer to an idle slice."},
		kind: choice(func(c *Config) *string { return &c.IdleAction }, IdleReport,
			Word{IdleReport, []string{"It is logged, once, and its longest idle time is noted in the job's usage record."}},
			Word{IdleCancel, []string{"A job all of whose slices on the node are idle is also cancelled, with a word to its user, unless it has other nodes, on which it may be at work."}}),
	},
	{
		Name: "metrics_users", Section: "Metrics",
		Meaning: []string{
			"vgpu-exporter(1) names the user and the account of each job.",
			"With `false` these labels are empty, and so is the user's number among the names of other exporters. The job's number stays.",
		},
		kind: truth(func(c *Config) *bool { return &c.MetricsUsers }, true),
	},
	{
		Name: "dcgm_job_map", Section: "Metrics",
		Meaning: []string{
			"Folder in which dcgm-exporter learns which jobs a GPU has (its `--hpc-job-mapping-dir`), usually `/run/dcgm-job-map`; \"\" is none. Only root may be able to " +
				"write there. `%n` is the node's name.",
			"The prolog and the epilog keep a file there for each GPU that has or had slices, named by its NVML index, with a line for each job on it. The folder is made if it is not there, " +
				"and left alone, with an error in the log, if others than root can write there.",
		},
		kind: of(func(c *Config) *string { return &c.DCGMJobMap }, "", "path, %n", `"" (none) or `+acceptedDir, func(path string) bool { return path == "" || isDir(path) }),
	},
	{
		Name: "slurm.scontrol", Section: "Slurm",
		Meaning: []string{"Slurm's commands."},
		kind:    program(func(c *Config) *string { return &c.Slurm.Scontrol }, "scontrol"),
	},
	{Name: "slurm.sacctmgr", Section: "Slurm", kind: program(func(c *Config) *string { return &c.Slurm.Sacctmgr }, "sacctmgr")},
	{Name: "slurm.sacct", Section: "Slurm", kind: program(func(c *Config) *string { return &c.Slurm.Sacct }, "sacct")},
	{Name: "slurm.squeue", Section: "Slurm", kind: program(func(c *Config) *string { return &c.Slurm.Squeue }, "squeue")},
	{Name: "slurm.scancel", Section: "Slurm", kind: program(func(c *Config) *string { return &c.Slurm.Scancel }, "scancel")},
	{
		Name: "slurm.slurmd_spool_dir", Section: "Slurm",
		Meaning: []string{
			"`SlurmdSpoolDir` of slurm.conf(5); `%n` is the node's name, `%h` the host's.",
			"A job whose step has a socket in this folder is alive; without it, jobs are looked up at the controller.",
		},
		kind: of(func(c *Config) *string { return &c.Slurm.SlurmdSpoolDir }, "/var/spool/slurmd", "path, %n and %h",
			acceptedDir+"; %n is the node's name, %h the host's", isDir),
	},
	{
		Name: "slurm.controller_timeout", Section: "Slurm",
		Meaning: []string{"How long the prolog tries to learn a job's allocation from a controller that does not answer, all tries together. `PrologEpilogTimeout` and `PrologTimeout` of " +
			"slurm.conf, where they are set, must leave room for it and one minute more."},
		kind: duration(func(c *Config) *time.Duration { return &c.Slurm.ControllerTimeout }, time.Minute, time.Second, time.Hour, "60s, 2m"),
	},
	{
		Name: "accounting_field", Section: "Accounting",
		Meaning: []string{"Where usage goes in the accounting database."},
		kind: choice(func(c *Config) *string { return &c.AccountingField }, FieldAdminComment,
			Word{FieldAdminComment, []string{"Into a job's AdminComment; where jobstats has its text there (JS1:), into Extra instead.",
				"A text there that begins with `JS1:` is jobstats' and stays. Where `slurm.conf` has an EpilogSlurmctld, AdminComment is written 15 seconds after the job's " +
					"end at the earliest."}},
			Word{FieldExtra, []string{"Into Extra, which Slurm has from 23.02 on.",
				"A job's owner can fill it when he submits; his text is kept beside usage. `vgpuctl` reads Extra of no job where the site says otherwise, but of those " +
					"whose AdminComment is jobstats', and says that its owner may have written it."}},
			Word{FieldNone, []string{"Nowhere: records stay in `spool_dir`."}}),
		More: []string{"A record that has no field to go to is kept in the folder `history` of `spool_dir`, where `vgpuctl explain` finds it."},
	},
	{
		Name: "report.enabled", Section: "Accounting",
		Meaning: []string{"Write what each job was granted and what it used into the accounting database."},
		kind:    truth(func(c *Config) *bool { return &c.Report.Enabled }, true),
	},
	{
		Name: "report.retry_for", Section: "Accounting",
		Meaning: []string{
			"How long a usage record is tried before it is given up.",
			"A record that was given up is in the folder `history` of `spool_dir`, and is not tried again. Where the database is down for longer, raise this before that time is over.",
		},
		kind: duration(func(c *Config) *time.Duration { return &c.Report.RetryFor }, 24*time.Hour, time.Second, 8760*time.Hour, "30m, 24h"),
	},
	{
		Name: "log.level", Section: "Log",
		Meaning: []string{"`trace`, `debug`, `info`, `warn`, `error` or `off`. \"\" is `info` to a file and `warn` to standard error."},
		kind: of(func(c *Config) *string { return &c.Log.Level }, "", "text", `"" (info to a file, warn to stderr), trace, debug, info, warn, error, off`,
			func(level string) bool { return level == "" || hclog.LevelFromString(level) != hclog.NoLevel }),
	},
	{
		Name: "log.format", Section: "Log",
		Meaning: []string{"`text` or `json`."},
		kind:    choice(func(c *Config) *string { return &c.Log.Format }, FormatText, Word{Is: FormatText}, Word{Is: FormatJSON}),
	},
	{
		Name: "log.file", Section: "Log", Example: "/var/log/slurm-vgpu/slurm-vgpu.log",
		Meaning: []string{
			"\"\" is standard error, which slurmd shows for a prolog or epilog only if it fails.",
			"Lines are appended; the file is made with mode 0640. A symbolic link is refused.",
		},
		kind: of(func(c *Config) *string { return &c.Log.File }, "", "path", `"" (stderr) or an absolute path`, func(path string) bool { return path == "" || isDir(path) }),
	},
}
