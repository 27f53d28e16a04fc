// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// restClient sends one request to slurmrestd, which on a socket of its own user serves that user alone.
const restClient = `
import http.client, socket, sys
path, method, url = sys.argv[1:]
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(path)
body = sys.stdin.read()
connection.request(method, url, body or None, {"Content-Type": "application/json"})
print(connection.getresponse().read().decode())
`

// restService is a slurmrestd that runs as a user.
type restService struct {
	user   cluster.User
	folder string
	api    int // 38 is v0.0.38
}

// startREST starts one that ends with the test.
func startREST(t *testing.T, u cluster.User) *restService {
	t.Helper()
	if run(t, root, "command -v slurmrestd").Code != 0 {
		t.Skip("there is no slurmrestd: test/setup.sh --containers installs it where there is a package of it")
	}
	r := &restService{user: u, folder: filepath.Join(u.Home, "rest")}
	ok(t, u, "mkdir "+r.folder)
	t.Cleanup(func() { _ = os.RemoveAll(r.folder) })
	if err := os.WriteFile(filepath.Join(r.folder, "client.py"), []byte(restClient), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	daemon := c.Command(ctx, u, "exec slurmrestd -a rest_auth/local unix:"+r.folder+"/socket > "+r.folder+"/log 2>&1 < /dev/null")
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = daemon.Wait()
	})
	until(t, "slurmrestd to say what it offers", 30*time.Second, func() error {
		result := r.call(t, "GET", "/openapi/v3", "")
		for _, match := range regexp.MustCompile(`v0\.0\.(\d+)\\?/job\\?/submit`).FindAllStringSubmatch(result.Stdout, -1) {
			n, _ := strconv.Atoi(match[1])
			r.api = max(r.api, n)
		}
		if r.api == 0 {
			return fmt.Errorf("%s\n%s", result, r.log(t))
		}
		return nil
	})
	return r
}

func (r *restService) call(t *testing.T, method, url, body string) cluster.Result {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.folder, "body"), []byte(body), 0o644); err != nil {
		t.Fatal(err)
	}
	return run(t, r.user, fmt.Sprintf("cd rest; python3 client.py socket %s %s < body", method, url))
}

func (r *restService) log(t *testing.T) string {
	t.Helper()
	return run(t, root, "cat "+r.folder+"/log").Stdout
}

// restAnswer is what slurmrestd says to that.
type restAnswer struct {
	Job    int `json:"job_id"`
	Errors []struct {
		Number int    `json:"error_number"` // error_code until 22.05
		Code   int    `json:"error_code"`
		Text   string `json:"error"`
	} `json:"errors"`
}

// submit asks for a job with these properties besides those that each needs.
func (r *restService) submit(t *testing.T, script string, properties map[string]any) restAnswer {
	t.Helper()
	path := "PATH=" + c.Home.Path("bin") + ":/usr/bin:/bin"
	job := map[string]any{"name": "rest", "current_working_directory": r.user.Home, "environment": []string{path}}
	if r.api < 39 {
		job["environment"] = map[string]string{"PATH": strings.TrimPrefix(path, "PATH=")}
	}
	for key, value := range properties {
		if text, isText := value.(string); isText && key == "tres_per_node" && r.api < 39 { // it had sbatch's words then
			key, value = "gres", strings.ReplaceAll(text, "gres/", "")
		}
		job[key] = value
	}
	body, err := json.Marshal(map[string]any{"script": "#!/bin/bash\n" + script + "\n", "job": job})
	if err != nil {
		t.Fatal(err)
	}
	result := r.call(t, "POST", fmt.Sprintf("/slurm/v0.0.%d/job/submit", r.api), string(body))
	var answer restAnswer
	if err := json.Unmarshal([]byte(result.Stdout), &answer); err != nil {
		t.Fatalf("%v: %s\n%s", err, result, r.log(t))
	}
	return answer
}

// TestJobsByREST: no program with a SPANK plugin submits such a job, so its GRES say all. It is held and accounted as any other.
func TestJobsByREST(t *testing.T) {
	begin(t)
	r := startREST(t, one)
	for _, tc := range []struct{ gres, script, want string }{
		{"gres/vgpu:1,gres/gpumem:3000,gres/gpucores:30", seen + "; srun --gres=gpumem:1000 " + seen + "; srun --vgpu-mem=500 " + seen, "3000\n1000\n500\n"},
		{"gres/gpumem:2000", seen, "2000\n"},
		{"gres/vgpu:2,gres/gpumem:8000", seen, "4000\n4000\n"},
		{"gres/vgpu:1", seen, fmt.Sprintf("%d\n", gpuMiB/slicesPerGPU)},
	} {
		answer := r.submit(t, tc.script, map[string]any{"tres_per_node": tc.gres})
		if answer.Job == 0 || len(answer.Errors) > 0 {
			t.Fatalf("%s: %+v\n%s", tc.gres, answer, r.log(t))
		}
		if out := finish(t, one, strconv.Itoa(answer.Job)); out != tc.want {
			t.Errorf("a job with %s sees %q, not %q", tc.gres, out, tc.want)
		}
	}
	answer := r.submit(t, "vgpu-fill", map[string]any{"tres_per_node": "gres/vgpu:1,gres/gpumem:3000,gres/gpucores:30"})
	job := strconv.Itoa(answer.Job)
	wantLimit(t, finish(t, one, job), 3000)
	wantTRES(t, job, "AllocTRES", "gres/vgpu=1", "gres/gpumem=3000", "gres/gpucores=30")
	slices := awaitUsage(t, job, 60*time.Second).VGPU.Nodes["n1"]
	if len(slices) != 1 || slices[0].MemMiB != 3000 || slices[0].Cores != 30 || slices[0].PeakMiB < 3000-contextMiB || slices[0].Refused == 0 {
		t.Errorf("its record is %+v", slices)
	}
}

// TestRefusalsByREST: the answer has Slurm's words, the log of slurmrestd the reason.
func TestRefusalsByREST(t *testing.T) {
	begin(t)
	r := startREST(t, one)
	before := lastJob(t)
	refusals := map[string]map[string]any{
		"--gres=gpumem:3G: gpumem counts MiB and takes no unit: write gpumem:3072": {"tres_per_node": "gres/vgpu:1,gres/gpumem:3G"},
		"--gres=gpumem:200000: no GPU has 200000 MiB: the most is 143771 MiB":      {"tres_per_node": "gres/vgpu:1,gres/gpumem:200000"},
	}
	if r.api >= 39 {
		refusals["vgpu per job: vgpu is counted per node only"] = map[string]any{"tres_per_job": "gres/vgpu:1,gres/gpumem:3000"}
		refusals["vgpu per task: vgpu is counted per node only"] = map[string]any{"tres_per_task": "gres/vgpu:1", "tasks": 1}
	}
	for why, properties := range refusals {
		answer := r.submit(t, "true", properties)
		if answer.Job != 0 || len(answer.Errors) == 0 || answer.Errors[0].Number != 2072 && answer.Errors[0].Code != 2072 {
			t.Errorf("%v: %+v", properties, answer)
		}
		if log := r.log(t); !strings.Contains(log, "error: vgpu: "+why) {
			t.Errorf("%v: slurmrestd does not say %q:\n%s", properties, why, log)
		}
	}
	if lastJob(t) != before {
		t.Error("there is a job")
	}
}
