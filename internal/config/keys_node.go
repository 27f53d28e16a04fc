// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/installed"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// nodeKeys are where things are on a node, and what stands between a job and the way around its limits.
var nodeKeys = []Key{
	{
		Name: "run_dir", Section: "Files",
		Meaning: []string{"State of this node's slices: state file, inventory, jobs' folders and pages. It must not survive a reboot. `%n` is the node's name."},
		kind: of(func(c *Config) *string { return &c.RunDir }, rundir.Default, "path of at most 90 bytes, %n",
			acceptedDir+" of at most 90 bytes; %n is the node's name", func(path string) bool { return isDir(path) && len(path) <= maxRunDir }),
	},
	{
		Name: "spool_dir", Section: "Files",
		Meaning: []string{"Usage records: `usage` holds those that are not in the accounting database yet, `history` those that lately went there. They must " +
			"survive a reboot. `%n` is the node's name."},
		kind: of(func(c *Config) *string { return &c.SpoolDir }, rundir.DefaultSpool, "path, %n", acceptedDir+"; %n is the node's name", isDir),
	},
	{
		Name: "library", Section: "Files",
		Meaning: []string{
			"The library that holds programs to their limits; it is put into every process of a job. No blanks, colons or `$` in the path.",
			"Each job keeps the copy in `builds` of `run_dir` that was made of it, and of what stands beside it, when the job began.",
		},
		kind: of(func(c *Config) *string { return &c.Library }, installed.Usual("libslurm-vgpu.so"), "path", "an absolute path without blanks, colons and $", isPreloadable),
	},
	{
		Name: "device_dir", Section: "Files",
		Meaning: []string{"Where the device nodes `nvidia0`, `nvidia1`, ... are."},
		kind:    path(func(c *Config) *string { return &c.DeviceDir }, "/dev"),
	},
	{
		Name: "device_files", Section: "Files",
		Meaning: []string{"The users that may open these nodes on the node itself, outside of steps. It counts under `isolation: strict` and `wall` alone."},
		kind: choice(func(c *Config) *string { return &c.DeviceFiles }, FilesOpen,
			Word{FilesOpen, []string{"Every user, with or without a slice.",
				"A session of ssh, or a job without a slice unless `without_slice` masks them, has the node's GPUs."}},
			Word{FilesClosed, []string{"Root and the members of `device_group`. Steps get files of their own for the GPUs that they hold, and jobs without a slice none. " +
				"`vgpuctl devices close` closes the nodes, on a node without jobs; slurm-vgpu-devices.service does at boot.",
				"The nodes belong to root and have mode 0600, or 0660 with a group. A step has a node of its own, which everybody may open, over that of each " +
					"GPU that it holds; these are in `slurm-vgpu-gpus` beside the others, a folder that only root may enter. GPUs in `slurm_gpus` stay as they are."}}),
		More: []string{"On a node without jobs: copy `udev/70-slurm-vgpu.rules` to `/etc/udev/rules.d`, write `device_files: closed`, enable `slurm-vgpu-devices.service` " +
			"and start it. It holds the nodes closed until the next boot, also from programs of root's that use NVML or CUDA and from nvidia-modprobe(1), " +
			"which open them otherwise; the next prolog closes what was opened, and `vgpuctl doctor` says where nodes are not held. With " +
			"`modprobe.d/slurm-vgpu.conf` in `/etc/modprobe.d` they are not open for a moment at boot, either. To go back, write `open` and give `vgpuctl devices open`."},
	},
	{
		Name: "device_group", Section: "Files",
		Meaning: []string{
			"The group that may open closed nodes, by name or number: admins, exporters, nvidia-persistenced outside of jobs. \"\" is root alone.",
			"A group that is not there is root alone, too. A service that runs as another user has no GPU otherwise; `nvidia-persistenced` needs " +
				"`SupplementaryGroups=GROUP` in its unit, as it takes no groups of its user.",
		},
		kind: of(func(c *Config) *string { return &c.DeviceGroup }, "", "text", `"" (root alone), a group, by name or number`,
			func(name string) bool { return !strings.ContainsAny(name, ": \t\n\x00") }),
	},
	{
		Name: "nvml_library", Section: "Files",
		Meaning: []string{"NVML's library: a file name that the dynamic linker finds, or an absolute path. \"\" is `libnvidia-ml.so.1`."},
		kind: of(func(c *Config) *string { return &c.NVMLLibrary }, "", "text", `"" (libnvidia-ml.so.1), a file name that the dynamic linker finds, or an absolute path`,
			func(name string) bool { return filepath.IsAbs(name) || !strings.Contains(name, "/") }),
	},
	{
		Name: "isolation", Section: "Isolation",
		Meaning: []string{"How a job is kept from getting around its limits."},
		kind: choice(func(c *Config) *string { return &c.Isolation }, IsolationStrict,
			Word{IsolationStrict, []string{"Each step has a mount namespace of its own, in which `/etc/ld.so.preload` names the library, guards stand over the driver's libraries " +
				"and device nodes of GPUs that the job does not hold cannot be opened."}},
			Word{IsolationWall, []string{"The same, and the driver itself holds the cgroup that Slurm makes for a job to the job's memory, whatever runs in it: a driver from R615 " +
				"on, Slurm's `cgroup/v2` and `ProctrackType=proctrack/cgroup`. A node that cannot do it refuses jobs with slices. Run `vgpu-gres inventory --write` and " +
				"`vgpuctl doctor` after the change. Beta: tried on a simulated driver only, not yet on a GPU.",
				"GPUs in MIG mode cannot do it. `vgpu-gres inventory --write` tries whether the driver does it; `vgpuctl doctor` tries again and says by whom limits are kept. " +
					"Managed memory, which the driver does not count, is kept by the library alone. It was written by NVIDIA's documentation."}},
			Word{IsolationPreload, []string{"`LD_PRELOAD` is set in the environment of each task, and nothing else: a job that wants out, gets out."}}),
		More: []string{"spank_vgpu.so(8) says what each of them withstands."},
	},
	{
		Name: "on_limit_failure", Section: "Isolation",
		Meaning: []string{"The fate of a program with known limits whose use of memory cannot be recorded, because the job's ledger is missing or unusable."},
		kind: choice(func(c *Config) *string { return &c.OnLimitFailure }, LimitClosed,
			Word{LimitClosed, []string{"Its first CUDA call fails with CUDA_ERROR_NOT_PERMITTED, and one line on standard error says why."}},
			Word{LimitOpen, []string{"It runs without a limit."}}),
		More: []string{
			"A program that finds no limits at all always fails.",
			"The same key decides about a job of which the controller does not say what it was allocated: with `closed` it is refused; with `open` it runs, without " +
				"limits, if it asked for nothing by options.",
		},
	},
	{
		Name: "other_apis", Section: "Isolation",
		Meaning: []string{"The ways to the GPU besides CUDA: OpenCL, Vulkan, OpenGL, and whatever 32-bit programs load. No limit of a slice holds for them. It counts under " +
			"`isolation: strict` and `wall` alone; elsewhere they are open."},
		kind: choice(func(c *Config) *string { return &c.OtherAPIs }, OtherClosed,
			Word{OtherClosed, []string{"In a slice a program that looks for them finds none of NVIDIA's, and one line on standard error says why.",
				"CUDA, video decoding and encoding, and OptiX, which take their memory from CUDA, go on. Rendering without a screen (EGL), as simulators for robots do, is closed as well."}},
			Word{OtherOpen, []string{"They are there, and take memory and time without limits."}}),
		More: []string{"It is the driver's libraries in the dynamic linker's cache (`ldconfig -p`) that are closed. A program that brings along a copy of its own is not stopped."},
	},
	{
		Name: "user_namespaces", Section: "Isolation",
		Meaning: []string{"Whether processes of jobs may make and enter user namespaces, in jobs with slices, with whole GPUs and without. In one, a user can cover " +
			"`/etc/ld.so.preload` and bring along any library, and make mounts without number, which hold up every other mount on the node. It counts " +
			"under `isolation: strict` and `wall` alone."},
		kind: choice(func(c *Config) *string { return &c.UserNamespaces }, UserAllow,
			Word{UserAllow, []string{"They may, as far as the kernel lets them."}},
			Word{UserDeny, []string{"They may not: no rootless containers (Podman, Charliecloud, enroot, Apptainer without setuid).",
				"unshare(2), clone(2) and setns(2) fail with EPERM for a user namespace, and so does every setns without a kind;" +
					" `clone3` fails with ENOSYS, for which the C library has another way. It holds for all processes of the step, task prologs and epilogs and 32-bit " +
					"programs too, and for root."}}),
		More: []string{"With `deny` no rootless container starts in a job: Podman, Charliecloud, enroot and Pyxis, Slurm's own `--container`, Apptainer and bubblewrap where " +
			"they are not installed with set-user-ID. Browsers need their `--no-sandbox`, and a plugin for job containers that gives jobs a user namespace " +
			"cannot be used. Programs with set-user-ID, such as sudo(8) or a setuid Apptainer, go on: `no_new_privs` is not set. Such a program is " +
			"responsible for its own mount namespaces."},
	},
}
