// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// prometheusServer is a real one, which scrapes the metrics of n1 once a second and has the rules that are shipped.
type prometheusServer struct{ address string }

// freePort is of the loopback; another program can take it before it is used, which the start then tells.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func startPrometheus(t *testing.T, target string) prometheusServer {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not installed; test/setup.sh --containers gets it where the system has a package")
	}
	folder := t.TempDir()
	rules, err := filepath.Abs("../../packaging/prometheus/slurm-vgpu.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n- job_name: slurm-vgpu\n"+
		"  static_configs: [{targets: [%q], labels: {instance: n1}}]\n", rules, target)
	if err := os.WriteFile(filepath.Join(folder, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	server := prometheusServer{freePort(t)}
	cmd := exec.Command(program, "--config.file="+folder+"/prometheus.yml", "--storage.tsdb.path="+folder+"/data", "--web.listen-address="+server.address)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("Prometheus: %s", said[max(0, len(said)-4000):])
		}
		log.Close()
	})
	until(t, "Prometheus", 60*time.Second, func() error { return server.get("/-/ready", nil, nil) })
	return server
}

// get asks the API; what it has as data is put into the answer.
func (s prometheusServer) get(path string, query url.Values, answer any) error {
	response, err := http.Get("http://" + s.address + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s, %w", path, response.Status, text, err)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, &struct {
		Data any `json:"data"`
	}{answer})
}

// finite counts the series of which an expression has a number that can be drawn.
func (s prometheusServer) finite(expr string) (series int, err error) {
	var answer struct {
		Result []struct {
			Value [2]any `json:"value"`
		} `json:"result"`
	}
	if err := s.get("/api/v1/query", url.Values{"query": {expr}}, &answer); err != nil {
		return 0, err
	}
	for _, r := range answer.Result {
		if text, _ := r.Value[1].(string); !strings.Contains(text, "NaN") && !strings.Contains(text, "Inf") {
			series++
		}
	}
	return series, nil
}

// boardOf is what is shipped for Grafana.
type boardOf struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

func readBoard(t *testing.T) (board boardOf) {
	t.Helper()
	text, err := os.ReadFile("../../packaging/grafana/slurm-vgpu.json")
	if err == nil {
		err = json.Unmarshal(text, &board)
	}
	if err != nil {
		t.Fatal(err)
	}
	return board
}

// filled puts in what Grafana does where everything is chosen.
func filled(expr string) string {
	return strings.NewReplacer("$instance", ".*", "$jobid", ".*", "$user", ".*", "$account", ".*", "$__rate_interval", "15s").Replace(expr)
}

// TestTheBoardShowsWhatHappens: a real Prometheus answers each query of the board with series, while there is something to see for each.
func TestTheBoardShowsWhatHappens(t *testing.T) {
	begin(t)
	board := readBoard(t)
	server := startPrometheus(t, exported(t))
	until(t, "a scrape", 60*time.Second, func() error {
		if n, err := server.finite("slurm_vgpu_build_info"); err != nil || n != 1 {
			return fmt.Errorf("%d series, %v", n, err)
		}
		return nil
	})
	workForTheBoard(t)
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			until(t, panel.Title+": "+target.Expr, 90*time.Second, func() error {
				n, err := server.finite(filled(target.Expr))
				if err == nil && n == 0 {
					err = fmt.Errorf("no series of %s", filled(target.Expr))
				}
				return err
			})
			wantLabels(t, server, target.Expr, target.LegendFormat)
		}
	}
	for _, variable := range board.Templating.List {
		wantChoice(t, server, variable.Type, variable.Definition)
	}
	wantRules(t, server)
}

// workForTheBoard gives each panel something: work, memory, a refused allocation, a job that finds no room, and a process
// without a slice.
func workForTheBoard(t *testing.T) {
	t.Helper()
	program, line := busyIn(t, one, "board")
	job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=30", "vgpu-fill --quiet; vgpu-fill --quiet --upto 500 --hold-until never & "+line+"; kill $!")
	t.Cleanup(func() { // what the script leaves behind would be a stray, and other tests would find it
		program.end()
		finish(t, one, job)
	})
	slicesOf(t, job)
	outside(t, two, "")
	fragment(t)
	awaitWaiting(t, submit(t, two, "--gres=vgpu:1 --vgpu-mem=60000", "true"), "1")
}

// wantLabels: what a legend names is a label of what it stands for.
func wantLabels(t *testing.T, server prometheusServer, expr, legend string) {
	t.Helper()
	var answer struct {
		Result []struct {
			Metric map[string]string `json:"metric"`
		} `json:"result"`
	}
	if err := server.get("/api/v1/query", url.Values{"query": {filled(expr)}}, &answer); err != nil {
		t.Error(err)
	}
	for _, name := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(legend, -1) {
		for _, r := range answer.Result {
			if r.Metric[name[1]] == "" {
				t.Errorf("%s has no label %s: %v", expr, name[1], r.Metric)
			}
		}
	}
}

// wantChoice: a variable has something to choose from.
func wantChoice(t *testing.T, server prometheusServer, kind, definition string) {
	t.Helper()
	if kind == "datasource" {
		return
	}
	parts := regexp.MustCompile(`^label_values\((.*), *(\w+)\)$`).FindStringSubmatch(definition)
	if parts == nil {
		t.Fatalf("%q is not what this test understands", definition)
	}
	var values []string
	if err := server.get("/api/v1/label/"+parts[2]+"/values", url.Values{"match[]": {filled(parts[1])}}, &values); err != nil || len(values) == 0 {
		t.Errorf("%s: %v, %v", definition, values, err)
	}
}

// wantRules: the alerts are evaluated, without an error.
func wantRules(t *testing.T, server prometheusServer) {
	t.Helper()
	until(t, "evaluated rules", 60*time.Second, func() error {
		var answer struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
		if err := server.get("/api/v1/rules", nil, &answer); err != nil || len(answer.Groups) != 1 || len(answer.Groups[0].Rules) < 6 {
			return fmt.Errorf("%+v, %w", answer, err)
		}
		for _, rule := range answer.Groups[0].Rules {
			if rule.Health != "ok" {
				return fmt.Errorf("%+v", rule)
			}
		}
		return nil
	})
}
