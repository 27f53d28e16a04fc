// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package shape

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// buildLibrary returns the path of the interposer's library, beside which its objects lie.
func buildLibrary(t *testing.T) string {
	t.Helper()
	build := exec.Command("make", "--no-print-directory", "build/libslurm-vgpu.so")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the interposer: %v\n%s", err, out)
	}
	return filepath.Join(root, "build/libslurm-vgpu.so")
}

// house is a copy of the interposer's sources and objects.
type house struct{ tree, objects string }

func newHouse(t *testing.T) house {
	t.Helper()
	library, dir := buildLibrary(t), t.TempDir()
	h := house{tree: filepath.Join(dir, "tree"), objects: filepath.Join(dir, "interposer")}
	for to, from := range map[string]string{h.tree: filepath.Join(root, "interposer"), h.objects: filepath.Join(filepath.Dir(library), "interposer")} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// add puts a source into a room, with its object.
func (h house) add(t *testing.T, name, text string) {
	t.Helper()
	source := filepath.Join(h.tree, name)
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	compile := exec.Command("cc", "-I"+h.tree, "-D_GNU_SOURCE", "-c", source, "-o", filepath.Join(h.objects, name+".o"))
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func (h house) check(t *testing.T) (string, bool) {
	t.Helper()
	out, err := exec.Command(filepath.Join(root, "interposer/checks/rooms.sh"),
		filepath.Join(filepath.Dir(h.objects), "libslurm-vgpu.so"), h.tree).CombinedOutput()
	return string(out), err == nil
}

func TestTheHouseAsItIsStands(t *testing.T) {
	if out, ok := newHouse(t).check(t); !ok || !strings.Contains(out, "PASS includes") || !strings.Contains(out, "PASS calls") {
		t.Errorf("it is refused:\n%s", out)
	}
}

func TestWhatGoesUpOrInACircleIsFound(t *testing.T) {
	for _, test := range []struct {
		name    string
		sources map[string]string
		says    string
	}{
		{"an include of a room further up", map[string]string{
			"base/extra.c": "#include \"gate/gate.h\"\n",
		}, "up: base/extra.c includes gate/gate.h"},
		{"headers that include each other", map[string]string{
			"base/one.h": "#pragma once\n#include \"base/two.h\"\n",
			"base/two.h": "#pragma once\n#include \"base/one.h\"\n",
		}, "in a circle: base/one.h -> base/two.h"},
		{"a call further up by a prototype of one's own", map[string]string{
			"base/extra.c": "void vgpu_gate_enter(void *, void *, void *);\nvoid vgpu_extra(void) { vgpu_gate_enter(0, 0, 0); }\n",
		}, "up: base/extra.c -> gate/gate.c (vgpu_gate_enter)"},
		{"two files of a room that call each other", map[string]string{
			"base/one.c": "void vgpu_two(void);\nvoid vgpu_one(void) { vgpu_two(); }\n",
			"base/two.c": "void vgpu_one(void);\nvoid vgpu_two(void) { vgpu_one(); }\n",
		}, "in a circle: base/one.c -> base/two.c (vgpu_two)"},
		{"a wrapper that is named elsewhere than in the table", map[string]string{
			"route/extra.c": "void vgpu_wrap_cuInit(void);\nvoid vgpu_extra(void) { vgpu_wrap_cuInit(); }\n",
		}, "up: route/extra.c -> cuda/cuda.c (vgpu_wrap_cuInit)"},
		{"a room that is not in the list", map[string]string{
			"attic/extra.c": "int vgpu_extra;\n",
		}, "attic/extra.c is in no room of the list"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHouse(t)
			for name := range test.sources {
				for _, dir := range []string{h.tree, h.objects} {
					if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
						t.Fatal(err)
					}
				}
			}
			for name, text := range test.sources {
				if strings.HasSuffix(name, ".h") {
					if err := os.WriteFile(filepath.Join(h.tree, name), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
					continue
				}
				h.add(t, name, text)
			}
			if out, ok := h.check(t); ok || !strings.Contains(out, test.says) {
				t.Errorf("it does not say %q:\n%s", test.says, out)
			}
		})
	}
}
