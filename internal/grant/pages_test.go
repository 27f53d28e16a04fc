// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

const (
	otherBuild = "VGPU_TEST_OTHER_BUILD"
	otherNow   = 99
)

// TestMain is vgpu-layout of another build as well, which differs in the number alone.
func TestMain(m *testing.M) {
	if os.Getenv(otherBuild) == "" {
		os.Exit(m.Run())
	}
	var said bytes.Buffer
	var answer ledger.Answer
	err := errors.Join(ledger.Serve(os.Stdin, &said), json.Unmarshal(said.Bytes(), &answer))
	answer.Version = otherNow
	if err = errors.Join(err, json.NewEncoder(os.Stdout).Encode(answer)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// other is what a job of another build has beside its interposer.
func other(t *testing.T) (g Grant, folder string) {
	t.Helper()
	folder = t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program(t, folder, "exec env "+otherBuild+"=1 "+self)
	return Grant{Job: 7, Library: filepath.Join(folder, LibraryFile), Layout: otherNow}, folder
}

func program(t *testing.T, folder, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, LayoutProgram), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestPagesOfAnotherBuild(t *testing.T) {
	g, folder := other(t)
	pages, path := g.Pages(), filepath.Join(folder, "limits")
	limits := ledger.Limits{Job: 7, Step: 2, UID: 1000, Generation: 1, JobStep: "7.2", PagesDir: "/run/pages/7", Devices: []ledger.LimitsDevice{
		{UUID: "GPU-1", StepMemBytes: 1 << 30, JobMemBytes: 2 << 30, DeviceMemBytes: 8 << 30, SMPercent: 20, JobSMPercent: 30, Index: 1, Minor: 2}}}
	if err := pages.WriteLimits(path, limits); err != nil {
		t.Fatal(err)
	}
	limits.Devices[0].StepMemBytes = 1 << 29
	if err := pages.ChangeLimits(path, limits); err != nil {
		t.Fatal(err)
	}
	limits.Generation = 2
	got, err := pages.ReadLimits(path)
	if diff := cmp.Diff(limits, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	book := filepath.Join(folder, "ledger")
	if err := ledger.Create(book, 7, 1, uint32(os.Getuid()), uint32(os.Getgid())); err != nil {
		t.Fatal(err)
	}
	bounds := ledger.Bounds{Bytes: []uint64{1 << 30}, Wall: time.Minute}
	if usage, err := pages.Read(book, 7, bounds); err != nil || len(usage.Devices) != 1 {
		t.Errorf("%+v, %v", usage, err)
	}
	if devices, err := pages.ReadDevices(book, 7, bounds); err != nil || len(devices) != 1 {
		t.Errorf("%+v, %v", devices, err)
	}
	if slots, err := pages.ReadSlots(book, 7, 1); err != nil || len(slots) != 0 {
		t.Errorf("%+v, %v", slots, err)
	}
	// Whose fault it is, is told apart: a ledger that its job has damaged, one that is gone, and a node that cannot read it.
	if _, err := pages.Read(book, 8, bounds); !errors.Is(err, ledger.ErrLayout) || errors.Is(err, ErrForeign) {
		t.Errorf("another job's: %v", err)
	}
	if _, err := pages.ReadSlots(book+"0", 7, 1); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrForeign) {
		t.Errorf("no ledger: %v", err)
	}
	if err := os.Remove(filepath.Join(folder, LayoutProgram)); err != nil {
		t.Fatal(err)
	}
	if _, err := pages.ReadSlots(book, 7, 1); !errors.Is(err, ErrForeign) || errors.Is(err, ledger.ErrLayout) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no program: %v", err)
	}
}

// What the program of another build says is not believed beyond what the job can have.
func TestAnswersOfAnotherBuildAreHeldToBounds(t *testing.T) {
	g, folder := other(t)
	bounds := ledger.Bounds{Bytes: []uint64{1000, 1000}, Wall: time.Second}
	program(t, folder, fmt.Sprintf(`cat >/dev/null; echo '{"Version": %d, "Usage": {"Devices": [{"used_bytes": 5000, "busy_ns": 5000000000, "waited_ns": 7}], "Steps": [{"Step": 3, "Devices": []}]},
		"Slots": [{"PID": 1, "Bytes": [1, 2, 3]}, {"PID": 2}]}'`, otherNow))
	usage, err := g.Pages().Read("/any", 7, bounds)
	want := ledger.Usage{Devices: []ledger.DeviceUsage{{UsedBytes: 1000, PeakBytes: 1000}, {}}, Steps: []ledger.StepUsage{{Step: 3, Devices: make([]ledger.DeviceUsage, 2)}}}
	if diff := cmp.Diff(want, usage); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	slots, err := g.Pages().ReadSlots("/any", 7, 2)
	if diff := cmp.Diff([]ledger.Slot{{PID: 1, Bytes: []uint64{1, 2}}, {PID: 2, Bytes: []uint64{0, 0}}}, slots); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	for what, script := range map[string]string{
		"another layout":  `echo '{"Version": 4}'`,
		"no answer":       "true",
		"nothing sound":   "echo '{'",
		"too much":        "head -c 9000000 /dev/zero",
		"an exit of 1":    fmt.Sprintf(`echo '{"Version": %d}'; exit 1`, otherNow),
		"an environment?": fmt.Sprintf(`[ -z "$HOME$LD_PRELOAD" ] && exit 1; echo '{"Version": %d}'`, otherNow),
	} {
		program(t, folder, "cat >/dev/null; "+script)
		if _, err := g.Pages().Read("/any", 7, bounds); !errors.Is(err, ErrForeign) {
			t.Errorf("%s: %v", what, err)
		}
	}
	program(t, folder, "true")
	if err := os.Chmod(filepath.Join(folder, LayoutProgram), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Pages().Read("/any", 7, bounds); !errors.Is(err, ErrForeign) || !errors.Is(err, trusted.ErrUntrusted) {
		t.Errorf("a program that all can write: %v", err)
	}
}

// Builds that do not know each other read this: a name that changes here breaks the jobs that run during an upgrade.
func TestTheQuestionStaysAsItIs(t *testing.T) {
	_, folder := other(t)
	program(t, folder, "cat > "+filepath.Join(folder, "question")+fmt.Sprintf(`; echo '{"Version": %d}'`, otherNow))
	g := Grant{Library: filepath.Join(folder, LibraryFile), Layout: otherNow}
	limits := ledger.Limits{Job: 1, Step: 2, UID: 3, Flags: 1, Generation: 4, JobStep: "1.2", PagesDir: "/t",
		Devices: []ledger.LimitsDevice{{UUID: "GPU-1", StepMemBytes: 5, JobMemBytes: 6, DeviceMemBytes: 7, SMPercent: 8, JobSMPercent: 9, Index: 10, Minor: 11}}}
	pages := g.Pages()
	question := func() string {
		data, err := os.ReadFile(filepath.Join(folder, "question"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	const said = `"Limits":{"Job":1,"Step":2,"UID":3,"Flags":1,"Generation":4,"JobStep":"1.2","TurnsDir":"/t","Devices":[{"UUID":"GPU-1","StepMemBytes":5,"JobMemBytes":6,` +
		`"DeviceMemBytes":7,"SMPercent":8,"JobSMPercent":9,"Index":10,"Minor":11}]},"Bounds":{"Bytes":null,"Wall":0}}`
	if err := pages.WriteLimits("/p", limits); err != nil || question() != `{"Op":"write-limits","Path":"/p",`+said {
		t.Errorf("%v: %s", err, question())
	}
	if err := pages.ChangeLimits("/p", limits); err != nil || question() != `{"Op":"change-limits","Path":"/p",`+said {
		t.Errorf("%v: %s", err, question())
	}
	if _, err := pages.Read("/p", 1, ledger.Bounds{Bytes: []uint64{2}, Wall: 3}); err != nil || question() != `{"Op":"read-usage","Path":"/p","Job":1,"Bounds":{"Bytes":[2],"Wall":3}}` {
		t.Errorf("%v: %s", err, question())
	}
	if _, err := pages.ReadSlots("/p", 1, 2); err != nil || question() != `{"Op":"read-slots","Path":"/p","Job":1,"Devices":2,"Bounds":{"Bytes":null,"Wall":0}}` {
		t.Errorf("%v: %s", err, question())
	}
	var answer bytes.Buffer
	all := ledger.Answer{Error: "e", Kind: "layout", Limits: &ledger.Limits{}, Version: 5, Slots: []ledger.Slot{{PID: 1, PIDNS: 2, Bytes: []uint64{3}}},
		Usage: &ledger.Usage{Steps: []ledger.StepUsage{{Step: 1, Devices: []ledger.DeviceUsage{{UsedBytes: 1, PeakBytes: 2, Refusals: 3}}}}}}
	if err := json.NewEncoder(&answer).Encode(all); err != nil {
		t.Fatal(err)
	}
	if want := `{"Error":"e","Kind":"layout","Limits":{"Job":0,"Step":0,"UID":0,"Flags":0,"Generation":0,"JobStep":"","TurnsDir":"","Devices":null},"Usage":{"Devices":null,"Steps":[{"Step":1,` +
		`"Devices":[{"used_bytes":1,"peak_bytes":2,"refusals":3}]}]},"Slots":[{"PID":1,"PIDNS":2,"Bytes":[3]}],"Version":5}`; strings.TrimSpace(answer.String()) != want {
		t.Errorf("%s", answer.String())
	}
}
