// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

const limitMiB = 3000

func (s *story) nodes() {
	s.title("What the node has to give")
	result := s.show(s.one, `sinfo -N -o "%N %T %G"`)
	s.check(strings.Contains(result.Stdout, "vgpu:") && strings.Contains(result.Stdout, "gpumem:"), "sinfo shows no vgpu")
	result = s.show(s.c.Root(), "nvidia-smi -L")
	s.check(strings.Count(result.Stdout, "GPU ") >= len(s.c.GPUs()), "nvidia-smi -L lists other GPUs than %d", len(s.c.GPUs()))
}

const job = `#!/bin/bash
nvidia-smi
vgpu-fill
`

// slice is the main job: asked for, granted, seen and enforced.
func (s *story) slice() {
	s.title("A slice: 3000 MiB of one GPU and 30 % of its time")
	s.write(s.one, "job.sh", job)
	s.show(s.one, "cat job.sh")
	id := s.submit(s.one, "sbatch --gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=30 job.sh")
	s.awaitEnd(id)
	out := s.show(s.one, "cat slurm-"+id+".out").Stdout
	s.check(regexp.MustCompile(`/ +3000 ?MiB`).MatchString(out), "nvidia-smi in the job does not say 3000 MiB")
	s.refusedAt(out, `CUDA_ERROR_OUT_OF_MEMORY after (\d+) MiB`)
	s.gap()
	s.say("The whole GPU has %d MiB. The job saw %d, and got CUDA's own error at its limit.", s.c.GPUs()[0], limitMiB)
}

// refusedAt checks that a program got most of the slice and not more. What is missing is its CUDA
// context, which counts too.
func (s *story) refusedAt(out, pattern string) {
	match := regexp.MustCompile(pattern).FindStringSubmatch(out)
	if !s.check(match != nil, "no %q in the job's output", pattern) {
		return
	}
	got, _ := strconv.Atoi(match[1])
	s.check(got <= limitMiB && got >= limitMiB-1000, "the program took %d MiB of %d", got, limitMiB)
}

//go:embed torch_oom.py
var torchOOM string

// pytorch runs only where there is a PyTorch and a GPU for it.
func (s *story) pytorch(python string) {
	if s.c.Simulated() {
		return
	}
	if python == "" {
		python, _ = exec.LookPath("python3")
	}
	s.gap()
	s.say("… looking for PyTorch")
	if python == "" || s.c.Run(s.ctx, s.one, python+" -c 'import torch; torch.OutOfMemoryError'").Code != 0 {
		s.say("PyTorch is not installed for %q; --torch-python=PATH names another.", python)
		return
	}
	s.python = python
	s.title("The same limit in PyTorch")
	s.write(s.one, "torch_oom.py", torchOOM)
	s.show(s.one, "cat torch_oom.py")
	id := s.submit(s.one, fmt.Sprintf("sbatch --gres=vgpu:1 --vgpu-mem=3000 --wrap '%s -u torch_oom.py'", python))
	s.awaitEnd(id)
	out := s.show(s.one, "cat slurm-"+id+".out").Stdout
	s.check(strings.Contains(out, "total 3000 MiB"), "torch.cuda.mem_get_info() does not say 3000 MiB")
	s.refusedAt(out, `torch.OutOfMemoryError after (\d+) MiB`)
}

// neighbours shares one GPU between two users.
func (s *story) neighbours() {
	s.title("Two users side by side on one GPU")
	release := s.c.Home.Path("run", "release")
	const look = "#!/bin/bash\nnvidia-smi --query-gpu=uuid,memory.total --format=csv,noheader\n"
	s.write(s.one, "hold.sh", look+"vgpu-fill --hold-until "+release+"\n")
	s.show(s.one, "cat hold.sh")
	if s.python == "" {
		s.write(s.two, "hold.sh", look+"vgpu-fill --hold-until "+release+"\n")
	} else {
		s.write(s.two, "torch_oom.py", torchOOM)
		s.write(s.two, "hold.sh", look+s.python+" -u torch_oom.py "+release+"\n")
		s.show(s.two, "cat hold.sh")
	}
	first := s.submit(s.one, "sbatch --gres=vgpu:1 --vgpu-mem=8G hold.sh")
	second := s.submit(s.two, "sbatch --gres=vgpu:1,gpumem:5000 hold.sh")
	if first == "" || second == "" {
		return
	}
	holds := func(u cluster.User, id string) bool {
		out := s.c.Run(s.ctx, u, "cat slurm-"+id+".out").Stdout
		return strings.Contains(out, "CUDA_ERROR_OUT_OF_MEMORY") || strings.Contains(out, "torch.OutOfMemoryError")
	}
	s.until("both to fill their slices", 60*time.Second, func() bool {
		return holds(s.one, first) && holds(s.two, second) || s.ended(first) || s.ended(second)
	})
	s.check(holds(s.one, first) && holds(s.two, second), "a job ended before it had filled its slice")
	s.show(s.one, `squeue -o "%i %u %T %b"`)
	s.gap()
	s.say("What the node's administrator sees:")
	status := s.show(s.c.Root(), s.vgpuctl("status")).Stdout
	for _, part := range []string{s.one.Name, s.two.Name, "8192", "5000"} {
		s.check(strings.Contains(status, part), "vgpuctl status does not show %s", part)
	}
	s.sharesOneGPU(first, second)
	processes := s.show(s.c.Root(), "nvidia-smi").Stdout
	// In a container a real nvidia-smi may not know any process.
	if !strings.Contains(processes, "No running processes") || s.c.Simulated() {
		both := strings.Count(processes, "vgpu-fill") + strings.Count(processes, "python")
		s.check(both >= 2, "nvidia-smi on the node does not list both programs")
	}
	s.gap()
	s.say("What each of the two sees:")
	out := s.show(s.one, "cat slurm-"+first+".out").Stdout
	s.check(strings.Contains(out, "8192 MiB"), "the first job does not see 8192 MiB")
	out = s.show(s.two, "cat slurm-"+second+".out").Stdout
	s.check(strings.Contains(out, "5000 MiB"), "the second job does not see 5000 MiB")
	s.c.Run(s.ctx, s.c.Root(), "touch "+release)
	s.awaitEnd(first)
	s.awaitEnd(second)
}

// vgpuctl is its command line: where the host's own /etc is in use, the configuration is elsewhere.
func (s *story) vgpuctl(command string) string {
	if s.c.Home.InPlace() {
		return "vgpuctl --config " + s.c.ConfigPath() + " " + command
	}
	return "vgpuctl " + command
}

// sharesOneGPU asks vgpuctl, as a script would.
func (s *story) sharesOneGPU(jobs ...string) {
	result := s.c.Run(s.ctx, s.c.Root(), s.vgpuctl("status --json"))
	if !s.check(result.Code == 0 && json.Valid([]byte(result.Stdout)), "vgpuctl status --json: %s", result) {
		return
	}
	seen := map[string]bool{}
	for _, id := range jobs {
		uuid := s.c.Run(s.ctx, s.c.Root(), "grep -o 'GPU-[-0-9a-f]*' "+s.c.Home.Path("run", s.c.Nodes[0], "jobs", id, "grant.json")+" | head -1").Stdout
		seen[strings.TrimSpace(uuid)] = true
	}
	s.check(len(seen) == 1, "the two jobs are not on one GPU: %v", seen)
}

// share is a program that launches all it can, and gets its part of the GPU's time.
func (s *story) share() {
	const percent = 25
	s.title(fmt.Sprintf("A share of time: %d %%", percent))
	s.say("vgpu-busy launches kernels of a millisecond as fast as it can, and counts them.")
	s.gap()
	out := s.show(s.one, fmt.Sprintf("srun --gres=vgpu:1 --vgpu-mem=2000 --vgpu-cores=%d vgpu-busy --for 4000", percent)).Stdout
	match := regexp.MustCompile(`busy for ([\d.]+) %`).FindStringSubmatch(out)
	if !s.check(match != nil, "vgpu-busy does not say what it got") {
		return
	}
	// Less is the fault of a machine that is busy with other things; more would be ours, but for the moment until vgpud has seen the program.
	got, _ := strconv.ParseFloat(match[1], 64)
	s.check(got <= percent+3 && got >= percent-5, "the program had %.1f %% of the GPU's time", got)
}

func (s *story) refusals() {
	s.title("What cannot be is refused at once, with the reason")
	for _, line := range []string{
		"sbatch --gres=vgpu:1 --vgpu-mem=3T job.sh",
		"sbatch --gres=vgpu:1 --vgpu-mem=999999 job.sh",
		"sbatch --gres=vgpu:1,gpumem:8G job.sh",
		fmt.Sprintf("sbatch --gres=vgpu:%d job.sh", len(s.c.GPUs())+1),
		"sbatch --vgpu-mem=3000 job.sh",
	} {
		result := s.show(s.one, line)
		s.check(result.Code != 0 && strings.Contains(result.Stderr, "vgpu: "), "%q is not refused with a reason", line)
		s.check(!strings.Contains(result.Stdout, "Submitted"), "%q became a job", line)
	}
}

func (s *story) accounting() {
	s.title("What was asked, granted and used, from Slurm's accounting")
	s.until("usage to be accounted", 60*time.Second, func() bool {
		lines := strings.Split(strings.TrimSpace(s.c.Run(s.ctx, s.c.Root(), "sacct -a -X -n -P -o JobID,AdminComment").Stdout), "\n")
		for _, line := range lines {
			if !strings.Contains(strings.ToLower(line), "peak") {
				return false
			}
		}
		return len(lines) >= 3
	})
	s.show(s.c.Root(), "sacct -a -X -P -o JobID,User,State,ReqTRES,AllocTRES")
	out := s.show(s.c.Root(), "sacct -a -X -P -o JobID,User,AdminComment").Stdout
	s.check(strings.Contains(out, "3000"), "no AdminComment tells of 3000 MiB")
	tres := s.c.Run(s.ctx, s.c.Root(), "sacct -a -X -n -P -o AllocTRES").Stdout
	s.check(strings.Contains(tres, "gres/gpumem=3000") && strings.Contains(tres, "gres/gpucores=30"), "AllocTRES lacks the slice: %s", tres)
}
