// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/launch"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// Limits of plan.h that other packages know by other names.
func TestSizesAgree(t *testing.T) {
	if wireBytes != request.MaxWireBytes+1 {
		t.Errorf("VGPU_WIRE_BYTES is %d, want request.MaxWireBytes and NUL: %d", wireBytes, request.MaxWireBytes+1)
	}
	if options := len(requestData{}.option); options != len(request.Options) {
		t.Errorf("rows.h has %d options, want those of request.Options: %d (make generate)", options, len(request.Options))
	}
}

func TestTextsRoundTrip(t *testing.T) {
	field := make([]char, 8)
	for _, text := range []string{"", "a", "sieben7", "é\xff"} {
		if err := put(field, text); err != nil {
			t.Fatalf("put(%q): %v", text, err)
		}
		if got := get(field); got != text {
			t.Errorf("got %q back, want %q", got, text)
		}
	}
	for _, text := range []string{"achtacht", "nul\x00nul", "\x00nul", "nul\x00"} {
		if err := put(field, text); err == nil {
			t.Errorf("put(%q) into 8 bytes: want an error, because half a text is a wrong one", text)
		}
	}
}

func TestReasonIsOneLineThatFits(t *testing.T) {
	for _, c := range []struct{ reason, want string }{
		{"no GPU fits", "no GPU fits"},
		{"a\nb\x1b[31m\tc\x00d", "a; b [31m c d"},
		{strings.Repeat("é", 100), strings.Repeat("é", 18) + "…"},
		{"bad \xff byte", "bad   byte"},
	} {
		field := make([]char, 41)
		putReason(field, errors.New(c.reason))
		if diff := cmp.Diff(c.want, get(field)); diff != "" {
			t.Errorf("putReason(%q) (-want +got):\n%s", c.reason, diff)
		}
	}
}

func TestGuardTurnsPanicIntoError(t *testing.T) {
	var none map[string]int
	err := guard(func() error { none["x"] = 1; return nil })
	if err == nil || !strings.Contains(err.Error(), "internal fault") {
		t.Errorf("got %v, want an internal fault", err)
	}
}

// A plan that C has no room for must become a refusal, never part of a plan.
func TestPlanThatDoesNotFit(t *testing.T) {
	long := strings.Repeat("x", 20000)
	for name, plan := range map[string]launch.Plan{
		"variables": {Ours: true, Env: make([]grant.EnvVar, 99)},
		"masks":     {Ours: true, Strict: true, Mask: make([]string, 999)},
		"value":     {Ours: true, Env: []grant.EnvVar{{Name: "A", Value: long}}},
		"name":      {Ours: true, Env: []grant.EnvVar{{Name: long, Value: "a"}}},
		"folder":    {Ours: true, StepDir: long},
		"preload":   {Ours: true, PreloadFile: long},
		"mask":      {Ours: true, Mask: []string{long}},
		"library":   {Ours: true, Library: long},
		"pages":     {Ours: true, PagesDir: long},
		"all pages": {Ours: true, AllPages: long},
	} {
		var data planData
		if err := putPlan(&data, plan); err == nil || data.verdict != 0 {
			t.Errorf("%s: got verdict %d and error %v, want an error and no verdict", name, data.verdict, err)
		}
	}
	var data planData
	if err := putPlan(&data, launch.Plan{}); err != nil || data.verdict != 0 {
		t.Errorf("not our job: got verdict %d and error %v", data.verdict, err)
	}
	small := launch.Plan{Ours: true, Env: []grant.EnvVar{{Name: "A", Value: "b"}}, Mask: []string{"/dev/nvidia1"}}
	if err := putPlan(&data, small); err != nil || data.verdict != 1 || data.env_count != 1 || data.mask_count != 1 {
		t.Errorf("a small plan: got verdict %d, %d variables, %d masks and error %v", data.verdict, data.env_count, data.mask_count, err)
	}
}

// Slurm's callback has checked the options; what it did not see must not become a job without them.
func TestOptionsThatCannotBeTakenAreAnErrorOfTheJob(t *testing.T) {
	mem := func(text string) (r requestData) { // --vgpu-mem is the first option
		if err := put(r.option[0][:], text); err != nil {
			t.Fatal(err)
		}
		return r
	}
	bad := mem("3T")
	vgpuEncodeRequest(&bad)
	if got := get(bad.error[:]); !strings.HasPrefix(got, "--vgpu-mem=3T: want ") {
		t.Errorf("--vgpu-mem=3T: got %q as the error and %q as the request", got, get(bad.request[:]))
	}
	good := mem("3G")
	vgpuEncodeRequest(&good)
	if got := get(good.request[:]); got != "mem=3072" || get(good.typed[:]) != "mem=3G" || get(good.error[:]) != "" {
		t.Errorf("--vgpu-mem=3G: got %q, typed %q and the error %q", got, get(good.typed[:]), get(good.error[:]))
	}
}
