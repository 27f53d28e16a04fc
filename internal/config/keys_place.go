// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// placeKeys are which GPU a job gets, and who waits.
var placeKeys = []Key{
	{
		Name: "slices_per_gpu", Section: "Placement",
		Meaning: []string{
			"At most so many slices on one GPU. The `vgpu` count of gres.conf is GPUs times this.",
			"`cluster.lua` on the controller has the same number, by which it gives memory to a slice that names none.",
		},
		kind: whole(func(c *Config) *int { return &c.SlicesPerGPU }, 10, 1, MaxSlicesPerGPU),
	},
	{
		Name: "sizes", Section: "Placement", Example: "{half: {mem: 50%, cores: 50}, quarter: {mem: 25%, cores: 25}, small: {mem: 8G}}",
		Meaning: []string{
			"Names for slices: users write `--gres=vgpu:half:1`. Values of `mem` and `cores` are those of `--vgpu-mem` and `--vgpu-cores`.",
			"A name has small letters, digits and `-`, begins with a letter, and is no type of GPU. A share is of the largest GPU that the job may come to. " +
				"`vgpu-gres sizes` prints a set; `vgpu-gres cluster.lua` prints the sizes for `job_submit.lua`, by which alone users have them. `vgpuctl nodes` shows how many fit.",
		},
		kind: of(func(c *Config) *map[string]map[string]any { return &c.Sizes }, nil, "names of slices",
			"at most 32 names of small letters, digits and -, each with mem or cores as --vgpu-mem and --vgpu-cores take them: {half: {mem: 50%, cores: 50}}", areSizes),
	},
	{
		Name: "mem_overcommit", Section: "Placement",
		Meaning: []string{
			"The slices of a GPU may together have so many times the memory that it has. 1.5: half as much again.",
			"Above 1.0 a program can be refused memory by the GPU before it reaches its own limit. The `gpumem` count of a node is its MiB times this number.",
		},
		kind: of(func(c *Config) *float64 { return &c.MemOvercommit }, 1.0, "1.0 to 100", "a number from 1.0 to 100", func(n float64) bool { return n >= 1 && n <= 100 }),
	},
	{
		Name: "place", Section: "Placement",
		Meaning: []string{"For jobs without `--vgpu-place`: `pack` prefers the fullest GPU on which the slice fits, which keeps others empty for large slices; `spread` prefers the emptiest."},
		kind:    choice(func(c *Config) *request.Place { return &c.Place }, request.PlacePack, wordsOf("vgpu-place")...),
	},
	{
		Name: "policy", Section: "Placement",
		Meaning: []string{"For jobs without `--vgpu-policy`: `cap` never lets a slice have more than its share of GPU time; `elastic` lets it have time that no other slice wants too."},
		kind:    choice(func(c *Config) *request.Policy { return &c.Policy }, request.PolicyCap, wordsOf("vgpu-policy")...),
	},
	{
		Name: "cheaters", Section: "Placement",
		Meaning: []string{"The answer of vgpud(8) to a step whose program gets around its weight."},
		kind: choice(func(c *Config) *string { return &c.Cheaters }, CheatersFreeze,
			Word{CheatersLog, []string{"It is logged."}},
			Word{CheatersFreeze, []string{"The step is frozen for ten seconds as well; the third time all steps of its job are killed.",
				"No step is killed for going on while it is others' turn, which another user's process can bring about."}},
			Word{CheatersKill, []string{"The step is killed, and the next time all steps of its job; a step that goes on while it is others' turn is frozen."}}),
		More: []string{"The job's user finds what was seen and done in `vgpuctl explain`, `report` and sacct(1), also of what is logged alone."},
	},
	{
		Name: "latency_qos", Section: "Placement",
		Meaning: []string{
			"Jobs of these QOS may have `--vgpu-priority=latency`, by which their work goes before others'. As names in Slurm: [rt, inference]. [\"*\"] is every one, [] none.",
			"The prolog goes by what the controller says of the job. With this list and that of `latency_partitions` empty no job may. `vgpu-gres cluster.lua` prints them for " +
				"`job_submit.lua`, which refuses at submission.",
		},
		kind: list(func(c *Config) *[]string { return &c.LatencyQOS }, nil, "list of names", acceptedNames, areNames),
	},
	{
		Name: "latency_partitions", Section: "Placement",
		Meaning: []string{"Jobs in these partitions may have what those of `latency_qos` have."},
		kind:    list(func(c *Config) *[]string { return &c.LatencyPartitions }, nil, "list of names", acceptedNames, areNames),
	},
	{
		Name: "latency_per_gpu", Section: "Placement",
		Meaning: []string{
			"At most so many slices of that priority on one GPU; their shares (`--vgpu-cores`) come to 100 at most anyway.",
			"A further one waits as for any other room.",
		},
		kind: whole(func(c *Config) *int { return &c.LatencyPerGPU }, 1, 1, 100),
	},
	{
		Name: "latency_burst", Section: "Placement",
		Meaning: []string{
			"GPU time that such a slice may have at once before others. It comes back at the slice's share (`--vgpu-cores`).",
			"A slice that has used it up is one among others until half of it has come back.",
		},
		kind: duration(func(c *Config) *time.Duration { return &c.LatencyBurst }, 250*time.Millisecond, time.Millisecond, 10*time.Second, "250ms"),
	},
	{
		Name: "drain", Section: "Placement", Example: "[GPU-5e1b8e4f-2a7d-4c0e-9a51-0d8f3b6c7e21]",
		Meaning: []string{
			"GPUs that get no new slices, by UUID or at least its first 8 characters after GPU-. Running jobs keep theirs.",
			"UUIDs are written as `nvidia-smi -L` prints them. Slices that these GPUs hold stay until their jobs end. `vgpuctl doctor` and `vgpu-gres check` say which of them " +
				"are no GPU of this node and drain nothing here.",
			"With `shards` Slurm goes on giving these GPUs out, and the prolog then refuses the job: drain the node in Slurm instead.",
		},
		kind: list(func(c *Config) *[]device.UUID { return &c.Drain }, nil, "list of device UUIDs",
			"a list of device UUIDs, as nvidia-smi -L prints them, or of their beginnings: [GPU-…]", areUUIDs),
	},
	{
		Name: "whole_gpus", Section: "Placement", NotBeside: []string{"slurm_gpus", "shards"},
		Meaning: []string{
			"`true`: GPUs that jobs get as Slurm's `gres/gpu` (`--gpus`, `--gres=gpu:N`) are placed here too, whole, on GPUs without slices. job_submit.lua says the same " +
				"(`vgpu.whole_gpus`). docs/whole-gpus.md has the whole story.",
			"Such a job is not limited, and nothing is loaded into it. `vgpu-gres gres.conf` then prints lines for `gres/gpu` as well, `job_submit.lua` needs " +
				"`vgpu.whole_gpus = true`, and `ConstrainDevices` must be off on the node.",
		},
		kind: truth(func(c *Config) *bool { return &c.WholeGPUs }, false),
	},
	{
		Name: "slurm_gpus", Section: "Placement", NotBeside: []string{"shards"},
		Meaning: []string{
			"GPUs that Slurm hands out by itself as `gres/gpu`, as the N of `/dev/nvidiaN`: [0, 1]. No slice is placed on them.",
			"Jobs see only what is theirs. `gres.conf` names the same files, in ascending order.",
		},
		kind: list(func(c *Config) *[]int { return &c.SlurmGPUs }, nil, "list of numbers", "a list of the N of /dev/nvidiaN: [0, 1]",
			func(numbers []int) bool {
				return !slices.ContainsFunc(numbers, func(n int) bool { return !within(n, 0, 1023) })
			}),
	},
	{
		Name: "shards", Section: "Placement",
		Meaning: []string{
			"`true`: Slurm picks the GPU of each slice by `gres/shard`, one for each MiB, and whole GPUs as `gres/gpu` (Slurm 23.11.5 and later).",
			"The prolog takes what Slurm picked. `vgpu-gres gres.conf` prints the lines, from that release on by default.",
			"`false` keeps counts by node there, of which `vgpu-gres check` and `vgpuctl doctor` warn otherwise.",
		},
		kind: truth(func(c *Config) *bool { return &c.Shards }, false),
	},
	{
		Name: "without_slice", Section: "Placement",
		Meaning: []string{
			"A job without a slice sees every GPU on which slices are placed (`leave`) or none of them (`mask`). \"\" is `mask` with `whole_gpus`, `slurm_gpus`, `shards` or " +
				"`device_files: closed`, and `leave` without.",
			"Not `leave` beside `device_files: closed`.",
		},
		kind: withoutSlice(),
	},
	{
		Name: "on_no_fit", Section: "Placement",
		Meaning: []string{"When a job was given counts that the node has, though no single GPU has the room:"},
		kind: choice(func(c *Config) *string { return &c.OnNoFit }, NoFitRequeue,
			Word{NoFitRequeue, []string{"A batch job goes back into the queue and waits for room, here or on another node.",
				"It must be one that may be requeued; other jobs fail with the reason. See vgpu-prolog(8)."}},
			Word{NoFitFail, []string{"The job fails with the reason."}}),
		More: []string{"The node is not drained in either case."},
	},
	{
		Name: "max_requeues", Section: "Placement",
		Meaning: []string{
			"After so many restarts a batch job that is refused for another reason fails.",
			"Another reason than a lack of room is, for example, GPUs that are not known. The job is not requeued again.",
		},
		kind: whole(func(c *Config) *int { return &c.MaxRequeues }, 5, 0, 1000),
	},
}
