// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var cudaHeader = flag.String("cuda-h", "", "hold the interposer's types against this cuda.h instead of an installed one")

// layout is what testdata/layout.c says behind a header: a line for each type, field and constant.
func layout(t *testing.T, header string, options ...string) map[string]string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "layout")
	args := append(options, "-D__CUDA_API_VERSION_INTERNAL", "-include", header, "-I", filepath.Dir(header),
		"-o", program, "testdata/layout.c")
	if out, err := exec.Command(cmp.Or(os.Getenv("CC"), "cc"), args...).CombinedOutput(); err != nil {
		t.Fatalf("compiling layout.c behind %s: %v\n%s", header, err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		said[name] = value
	}
	return said
}

func TestTypesAreTheHeaders(t *testing.T) {
	ours := layout(t, filepath.Join(root, "interposer/api/cuda_types.h"), "-I", filepath.Join(root, "interposer"))
	headers := existing("cuda.h", installed...)
	if *cudaHeader != "" {
		headers = []string{*cudaHeader}
	}
	if len(headers) == 0 {
		t.Skipf("no cuda.h in %s", strings.Join(installed, ", "))
	}
	for _, header := range headers {
		theirs := layout(t, header)
		if len(theirs) == 0 {
			t.Errorf("%s: layout.c says nothing behind it", header)
		}
		for name, value := range theirs {
			if ours[name] != value {
				t.Errorf("%s is %s, and %s in %s", name, ours[name], value, header)
			}
		}
	}
}
