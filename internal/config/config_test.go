// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMissingFileIsTheDefaults(t *testing.T) {
	cfg, err := Load(filepath.Join(t.TempDir(), "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), cfg); diff != "" {
		t.Error(diff)
	}
}

func TestEveryKeyIsRead(t *testing.T) {
	want := Config{
		RunDir: "/run/%n", SpoolDir: "/spool", Library: "/lib/l.so", Isolation: "preload",
		OnLimitFailure: "open", OtherAPIs: "open", UserNamespaces: "deny", OnNoFit: "fail", MaxRequeues: 7, SlicesPerGPU: 4, MemOvercommit: 2,
		Sizes: map[string]map[string]any{"half": {"mem": "50%", "cores": 50}, "a-2": {"mem": "8G"}},
		Place: request.PlaceSpread, Policy: request.PolicyElastic, Cheaters: "kill",
		LatencyQOS: []string{"rt", "inference"}, LatencyPartitions: []string{"*"}, LatencyPerGPU: 2, LatencyBurst: 100 * time.Millisecond, Drain: []device.UUID{"GPU-AbC", "GPU-d"},
		SlurmGPUs: []int{0, 3}, ShardsSaid: true, WithoutSlice: "mask", DeviceDir: "/d", DeviceFiles: "closed", DeviceGroup: "vgpu-admin", NVMLLibrary: "/n.so",
		Audit: "cancel", AuditIgnore: []string{"root", "990"}, AccountingField: "extra", IdleAfter: 30 * time.Minute, IdleAction: "cancel",
		Log: Log{Level: "debug", Format: "json", File: "/var/log/v"},
		Slurm: Slurm{Scontrol: "/a", Sacctmgr: "/b", Sacct: "/c", Squeue: "/d", Scancel: "/e", SlurmdSpoolDir: "/s/%n",
			ControllerTimeout: 90 * time.Second},
		Report: Report{Enabled: false, RetryFor: 2 * time.Hour},
	}
	cfg, err := Load(write(t, want.Effective()))
	if err != nil {
		t.Fatalf("%v\n%s", err, want.Effective())
	}
	if diff := cmp.Diff(want, cfg); diff != "" {
		t.Error(diff)
	}
	cfg, err = Load(write(t, Default().Effective()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default().Effective(), cfg.Effective()); diff != "" {
		t.Error(diff)
	}
}

// A row is enough: a key is read into its field, printed, and offered to whoever mistypes it.
func TestAMadeUpKeyIsRead(t *testing.T) {
	defer func(was []Key) { keys = was }(keys)
	keys = append(slices.Clone(keys), Key{Name: "made_up", NotBeside: []string{"shards"},
		kind: of(func(c *Config) *string { return &c.DeviceGroup }, "a", "text", "a or b", func(v string) bool { return v == "a" || v == "b" })})
	if cfg, err := Load(write(t, "made_up: b\n")); err != nil || cfg.DeviceGroup != "b" || !strings.Contains(cfg.Effective(), "made_up: b\n") {
		t.Errorf("%v, %q", err, cfg.DeviceGroup)
	}
	for text, says := range map[string]string{
		"made_up: c":               "made_up: c is not a value of this key; accepted: a or b; not beside shards",
		"made_ip: b":               "did you mean made_up?",
		"nothing_like_it: 1":       ", log.file, made_up",
		"shards: true\nmade_up: b": "shards: true is not a value of this key; accepted: true, false; not beside whole_gpus or slurm_gpus or made_up",
	} {
		if _, err := Load(write(t, text+"\n")); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %s", text, err, says)
		}
	}
	if cfg := Default(); cfg.DeviceGroup != "a" {
		t.Errorf("its default is %q", cfg.DeviceGroup)
	}
}

// fields are the addresses of all that a configuration holds.
func fields(v reflect.Value) (all []any) {
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Struct {
			all = append(all, fields(f)...)
		} else {
			all = append(all, f.Addr().Interface())
		}
	}
	return all
}

func TestEachFieldIsOfOneKey(t *testing.T) {
	var c Config
	all := slices.DeleteFunc(fields(reflect.ValueOf(&c).Elem()), func(field any) bool { return field == any(&c.ShardsSaid) })
	for i, field := range all {
		n := 0
		for _, k := range keys {
			if k.at(&c) == field {
				n++
			}
		}
		if n != 1 {
			t.Errorf("field %d of %d, a %T, is of %d keys", i+1, len(all), field, n)
		}
	}
	if len(all) != len(keys) {
		t.Errorf("%d fields and %d keys", len(all), len(keys))
	}
}

// wrongKeys are texts of config.yaml with one mistake, the key that is named for it, and what is said.
var wrongKeys = []struct{ text, key, says string }{
	{"run_dri: /x", "run_dri", "did you mean run_dir?"},
	{"slurm: {scontroll: /x}", "slurm.scontroll", "did you mean slurm.scontrol?"},
	{"slices: 4", "slices", "(did you mean slices_per_gpu?)"},
	{"nothing_like_it: 1", "nothing_like_it", "accepted: run_dir, spool_dir, library, device_dir"},
	{"log: {nothing: 1}", "log.nothing", "accepted: log.level, log.format, log.file"},
	{"log: verbose", "log", "log is a section: log.level, log.format, log.file"},
	{"isolation: Strict!", "isolation", "accepted: strict, wall, preload"},
	{"isolation: yes", "isolation", "accepted: strict, wall, preload"},
	{"accounting_field: Extra", "accounting_field", "accepted: admin_comment, extra, none"},
	{"on_no_fit: hold", "on_no_fit", "accepted: requeue, fail"},
	{"slices_per_gpu: ten", "slices_per_gpu", "a whole number from 1 to 1000"},
	{"slices_per_gpu: 10.5", "slices_per_gpu", "a whole number"},
	{"slices_per_gpu: true", "slices_per_gpu", "a whole number"},
	{"slices_per_gpu: 0", "slices_per_gpu", "a whole number"},
	{"max_requeues: -1", "max_requeues", "from 0 to 1000"},
	{"mem_overcommit: 0.5", "mem_overcommit", "from 1.0"},
	{"mem_overcommit: .nan", "mem_overcommit", "from 1.0"},
	{"run_dir: run", "run_dir", "absolute path"},
	{"run_dir: /" + strings.Repeat("x", 90), "run_dir", "at most 90 bytes"},
	{"library: /opt/my lib.so", "library", "without blanks"},
	{"library: /opt/a.so:/tmp/b.so", "library", "without blanks"},
	{"library: /opt/$LIB/a.so", "library", "without blanks"},
	{"library: a.so", "library", "without blanks"},
	{"drain: GPU-1", "drain", "[GPU-…]"},
	{"device_group: 'a:b'", "device_group", "by name or number"},
	{"shares_by: vgpud", "shares_by", "there is no such key any more, as vgpud keeps all shares of GPU time; accepted: a file without that line"},
	{"cheaters: cancel", "cheaters", "log, freeze, kill"},
	{"latency_qos: rt", "latency_qos", "[rt, inference]"},
	{"latency_qos: ['']", "latency_qos", "[rt, inference]"},
	{"latency_qos: ['a,b']", "latency_qos", "[rt, inference]"},
	{"latency_qos: [rt, '*']", "latency_qos", "[rt, inference]"},
	{"latency_partitions: ['r*']", "latency_partitions", `["*"] is all of them`},
	{"latency_partitions: [1]", "latency_partitions", "[rt, inference]"},
	{"latency_per_gpu: 0", "latency_per_gpu", "from 1 to 100"},
	{"latency_burst: 250", "latency_burst", "with its unit"},
	{"latency_burst: 11s", "latency_burst", "from 1ms to 10s"},
	{"audit: on", "audit", "off, log, cancel"},
	{"audit: false", "audit", "off, log, cancel"},
	{"audit_ignore: root", "audit_ignore", "[root, gdm]"},
	{"audit_ignore: ['']", "audit_ignore", "[root, gdm]"},
	{"audit_ignore: [a b]", "audit_ignore", "[root, gdm]"},
	{"drain: [0]", "drain", "[GPU-…]"},
	{"log: {level: loud}", "log.level", "trace, debug"},
	{"slurm: {controller_timeout: 60}", "slurm.controller_timeout", "with its unit"},
	{"slurm: {controller_timeout: 1ms}", "slurm.controller_timeout", "with its unit"},
	{"report: {enabled: sure}", "report.enabled", "true, false"},
	{"report: {enabled: 1}", "report.enabled", "true, false"},
	{"slices_per_gpu: 10.0", "slices_per_gpu", ": 10.0 is not a value of this key; accepted: a whole number"},
	{"slices_per_gpu: '10'", "slices_per_gpu", ": '10' is not"},
	{"slurm_gpus: [1.0, '0']", "slurm_gpus", ": [1.0, '0'] is not"},
	{"metrics_users: 'true'", "metrics_users", ": 'true' is not"},
	{"place: ''", "place", ": '' is not"},
	{"log:\n\tlevel: info", "", ": line 2 begins with a tab; accepted: spaces in its place"},
	{"isolation: strict\n \tplace: pack", "", ": line 2 begins with a tab; accepted: spaces"},
	{"place: pack\nplace: pack", "", ": unmarshal errors: line 2: mapping key \"place\" already defined at line 1; accepted"},
	{"run_dir: [a", "", "YAML"},
	{"just text", "", "YAML"},
}

func TestWrongKeysAreNamedAndKeepTheirDefaults(t *testing.T) {
	for _, tc := range wrongKeys {
		t.Run(tc.text, func(t *testing.T) {
			path := write(t, tc.text+"\n")
			_, err := Load(path)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, part := range []string{path, tc.key, tc.says} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			if strings.Contains(tc.says, "did you mean") && strings.Contains(err.Error(), "accepted") && !strings.Contains(tc.key, ".") {
				t.Errorf("%q lists all keys beside the one that was meant", err)
			}
			cfg, problems := LoadLenient(path)
			if len(problems) != 1 || problems[0].Key != tc.key {
				t.Errorf("problems %v, want one of %q", problems, tc.key)
			}
			if diff := cmp.Diff(Default(), cfg); diff != "" {
				t.Errorf("a wrong key changed something: %s", diff)
			}
		})
	}
}

func TestATypoIsTakenForTheNearestKey(t *testing.T) {
	for name, want := range map[string]string{
		"run_dir": "run_dir", "run_dri": "run_dir", "run_dirabc": "run_dir", "run_dirabcd": "", "rundir": "run_dir", "slurm.sacctmg": "slurm.sacctmgr",
		"slurm.sacctx": "slurm.sacct", "place": "place", "": "", "on_no_fi": "on_no_fit", "slices": "slices_per_gpu", "whole": "whole_gpus",
	} {
		if want != "" {
			want = " (did you mean " + want + "?)"
		}
		if got := suggestion(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestOneWrongKeyCostsNoOtherItsValue(t *testing.T) {
	cfg, problems := LoadLenient(write(t, "isolation: nope\nslices_per_gpu: 3\nlog: {format: xml, level: info}\n"))
	if len(problems) != 2 {
		t.Errorf("problems %v, want two", problems)
	}
	want := Default()
	want.SlicesPerGPU, want.Log.Level = 3, "info"
	if diff := cmp.Diff(want, cfg); diff != "" {
		t.Error(diff)
	}
}

func TestClosedFilesAreNotLeftToJobsWithoutASlice(t *testing.T) {
	for text, want := range map[string]struct {
		closed, masks bool
		problems      int
	}{
		"":                     {},
		"device_files: closed": {closed: true, masks: true},
		"device_files: closed\nwithout_slice: mask":  {closed: true, masks: true},
		"without_slice: leave\ndevice_files: closed": {closed: true, masks: true, problems: 1},
		"without_slice: hide\ndevice_files: shut":    {problems: 2},
		"isolation: preload\ndevice_files: closed":   {},
	} {
		cfg, problems := LoadLenient(write(t, text+"\n"))
		if cfg.ClosesFiles() != want.closed || cfg.MasksOthers() != want.masks || len(problems) != want.problems {
			t.Errorf("%q: closes %t, masks %t, problems %v", text, cfg.ClosesFiles(), cfg.MasksOthers(), problems)
		}
	}
}

func TestAListReplacesItsDefault(t *testing.T) {
	for text, want := range map[string][]string{"audit_ignore: []": {}, "audit_ignore: [gdm]": {"gdm"}, "audit: log": {"root"}} {
		cfg, err := Load(write(t, text+"\n"))
		if diff := cmp.Diff(want, cfg.AuditIgnore); err != nil || diff != "" {
			t.Errorf("%s: %v %s", text, err, diff)
		}
	}
}

func TestEmptyFileAndEmptyKeysAreDefaults(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "drain:\nlog:\n"} {
		cfg, err := Load(write(t, text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if diff := cmp.Diff(Default(), cfg); err == nil && diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestUntrustedFileIsNotRead(t *testing.T) {
	path := write(t, "isolation: preload\n")
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); !errors.Is(err, trusted.ErrUntrusted) {
		t.Errorf("got %v", err)
	}
	cfg, problems := LoadLenient(path)
	if len(problems) != 1 || cfg.Isolation != IsolationStrict {
		t.Errorf("isolation %s, problems %v", cfg.Isolation, problems)
	}
}

// What follows the limit might turn round what stands before it.
func TestFileThatIsTooLargeIsNotRead(t *testing.T) {
	text := "isolation: preload\n#"
	path := write(t, text+strings.Repeat("x", maxFileBytes-len(text)))
	if cfg, err := Load(path); err != nil || cfg.Isolation != IsolationPreload {
		t.Errorf("one that just fits: isolation %s, %v", cfg.Isolation, err)
	}
	path = write(t, text+strings.Repeat("x", maxFileBytes+1-len(text)))
	if _, err := Load(path); !errors.Is(err, trusted.ErrUntrusted) {
		t.Errorf("got %v", err)
	}
	cfg, problems := LoadLenient(path)
	if len(problems) != 1 || cfg.Isolation != IsolationStrict {
		t.Errorf("isolation %s, problems %v", cfg.Isolation, problems)
	}
}

func TestForNode(t *testing.T) {
	cfg := Default()
	cfg.RunDir, cfg.SpoolDir, cfg.Slurm.SlurmdSpoolDir = "/run/v/%n", "/spool/%n", "/var/%h/%n"
	got := cfg.ForNode("n1")
	if got.RunDir != "/run/v/n1" || got.SpoolDir != "/spool/n1" || got.Slurm.SlurmdSpoolDir != "/var/"+shortHostname()+"/n1" {
		t.Errorf("got %q %q %q", got.RunDir, got.SpoolDir, got.Slurm.SlurmdSpoolDir)
	}
	if got := cfg.ForNode("../../etc"); strings.Contains(got.RunDir, "/../") {
		t.Errorf("a node name leads out of the folder: %q", got.RunDir)
	}
	if got := cfg.ForNode(""); got.RunDir != "/run/v/"+shortHostname() {
		t.Errorf("without a node name: %q", got.RunDir)
	}
}

func TestWhoMayGoFirst(t *testing.T) {
	for _, tc := range []struct {
		qos, partitions    []string
		ofQOS, ofPartition string
		may                bool
	}{
		{nil, nil, "normal", "gpu", false},
		{nil, nil, "", "", false},
		{[]string{"rt"}, nil, "rt", "gpu", true},
		{[]string{"RT"}, nil, "rt", "gpu", true},
		{[]string{"rt"}, nil, "gpu", "rt", false},
		{[]string{"rt"}, nil, "", "rt", false},
		{nil, []string{"fast"}, "normal", "fast", true},
		{nil, []string{"fast"}, "normal", "Fast", false},
		{nil, []string{"fast"}, "fast", "", false},
		{nil, []string{"fast"}, "normal", "fast,slow", false},
		{[]string{"rt"}, []string{"fast"}, "normal", "fast", true},
		{[]string{"*"}, nil, "", "", true},
		{nil, []string{"*"}, "", "", true},
	} {
		cfg := Config{LatencyQOS: tc.qos, LatencyPartitions: tc.partitions}
		if may := cfg.MayGoFirst(tc.ofQOS, tc.ofPartition); may != tc.may {
			t.Errorf("%+v: %v", tc, may)
		}
	}
}

// An upgrade takes a key away, and the copy was made by the build before: jobs go on by it, and the file is not believed.
func TestACopyOfAnEarlierBuildHolds(t *testing.T) {
	path := write(t, "shares_by: vgpud\n")
	for text, want := range map[string]Standing{
		"shares_by: library\ncheaters: log\n":               ByLastGood,
		"shares_by: library\ncheaters: log\nno_such: key\n": Unknown,
	} {
		if err := os.WriteFile(LastGood(path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		held := LoadHeld(path)
		if held.Standing != want || len(held.Problems) == 0 {
			t.Errorf("%q: %s, %v", text, held.Standing, held.Problems)
		}
		if want == ByLastGood && held.Config.Cheaters != "log" {
			t.Errorf("%q: cheaters is %q", text, held.Config.Cheaters)
		}
	}
}
