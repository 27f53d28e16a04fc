// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurmdb

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseJobID(t *testing.T) {
	for text, want := range map[string][3]int64{
		"1":             {1, -1, -1},
		"4294967295":    {4294967295, -1, -1},
		"12_7":          {12, 7, -1},
		"12_0":          {12, 0, -1},
		"12+1":          {12, -1, 1},
		"0":             {},
		"":              {},
		"x":             {},
		"12_":           {},
		"12_[1-3]":      {},
		"12.batch":      {},
		"4294967296":    {},
		"12_4294967295": {},
		"1; drop":       {},
	} {
		job, task, component, err := parseJobID(text)
		if got := [3]int64{int64(job), task, component}; err == nil && got != want || (err != nil) != (want == [3]int64{}) {
			t.Errorf("parseJobID(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestLibrary(t *testing.T) {
	const sacctmgr = "/usr/bin/sacctmgr"
	if _, err := os.Stat(sacctmgr); err != nil {
		t.Skipf("Slurm is not installed: %v", err)
	}
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	if err := os.WriteFile(conf, []byte("ClusterName=c\nSlurmctldHost=localhost\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLURM_CONF", conf)
	library, err := Library(t.Context(), sacctmgr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(library); err != nil {
		t.Errorf("%s: %v", library, err)
	}
	for _, other := range []string{"/bin/true", "/etc/passwd", "/does/not/exist"} {
		if library, err := Library(t.Context(), other); !errors.Is(err, ErrNoLibrary) {
			t.Errorf("Library(%s) = %q, %v", other, library, err)
		}
	}
}

// The library that a command would load, as far as it says itself where that is.
func TestLibraryOfACommand(t *testing.T) {
	dir := t.TempDir()
	compile := func(arguments ...string) {
		cmd := exec.Command("cc", append([]string{"-x", "c", "-"}, arguments...)...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader("int slurm(void);\n#ifdef MAIN\nint puts(const char *);\nint main(void) { puts(\"slurm 99.01.1\"); return slurm(); }\n#else\nint slurm(void) { return 0; }\n#endif\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	compile("-shared", "-fPIC", "-o", "lib/libslurmfake.so")
	t.Chdir(dir)
	for name, tc := range map[string]struct {
		flags []string
		want  string
	}{
		"runpath":     {[]string{"-Wl,--enable-new-dtags,-rpath," + dir + "/lib"}, dir + "/lib/libslurmfake.so"},
		"rpath":       {[]string{"-Wl,--disable-new-dtags,-rpath,/none:" + dir + "/lib"}, dir + "/lib/libslurmfake.so"},
		"beside it":   {[]string{"-Wl,-rpath,$ORIGIN/lib"}, dir + "/lib/libslurmfake.so"},
		"not there":   {[]string{"-Wl,-rpath,/none"}, "libslurmfake.so"},
		"not said":    {nil, "libslurmfake.so"},
		"in a folder": {[]string{"-Wl,-rpath,lib"}, "libslurmfake.so"}, // of whoever starts it
	} {
		compile(append([]string{"-DMAIN", "-o", "command", "-Wl,--no-as-needed", "-Llib", "-lslurmfake"}, tc.flags...)...)
		if got, err := libraryOf(filepath.Join(dir, "command")); err != nil || got != tc.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tc.want)
		}
		if filepath.IsAbs(tc.want) {
			got, err := Library(t.Context(), filepath.Join(dir, "command"))
			if !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), "is of slurm 99.01.1, this program was built for") {
				t.Errorf("%s, of another release: %q, %v", name, got, err)
			}
		}
	}
}

func TestRelease(t *testing.T) {
	for version, want := range map[uint32]string{0x160508: "22.05", 0x170b0a: "23.11", 0x1a0501: "26.05"} {
		if got := release(version); got != want {
			t.Errorf("release(%#x) = %s, want %s", version, got, want)
		}
	}
}

func TestLibraryThatIsNone(t *testing.T) {
	for _, library := range []string{"/does/not/exist.so", "libm.so.6", "/etc/passwd"} {
		if _, err := Open(library); !errors.Is(err, ErrNoLibrary) {
			t.Errorf("%s: got %v", library, err)
		}
	}
}
