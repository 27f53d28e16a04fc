// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func number(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func TestLibrariesSayTheirVersion(t *testing.T) {
	for _, library := range []string{"libslurm-vgpu.so", "spank_vgpu.so"} {
		got, err := Of("../../build/" + library)
		if errors.Is(err, fs.ErrNotExist) {
			t.Skipf("%s is not built (make build)", library)
		}
		if err != nil || got != number(t) {
			t.Errorf("%s: got %q, %v", library, got, err)
		}
	}
}

func TestProgramsSayTheirVersion(t *testing.T) {
	for _, program := range []string{"vgpu-prolog", "vgpu-epilog", "vgpu-gres", "vgpuctl"} {
		path, err := filepath.Abs("../../build/" + program)
		if err != nil {
			t.Fatal(err)
		}
		said, err := exec.Command(path, "--version").Output()
		if errors.Is(err, fs.ErrNotExist) {
			t.Skipf("%s is not built (make build)", program)
		}
		if want := program + " " + number(t) + "\n"; err != nil || string(said) != want {
			t.Errorf("got %q, %v, want %q", said, err, want)
		}
	}
}

func TestOtherFilesHaveNoVersion(t *testing.T) {
	if got, err := Of("/proc/self/exe"); err != nil || got != Unknown {
		t.Errorf("a program of others: got %q, %v", got, err)
	}
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte("slurm-vgpu 0.1.0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Of(path); err == nil {
		t.Errorf("a text: got %q", got)
	}
}

func TestWhatIsUnknownDoesNotDiffer(t *testing.T) {
	had := Number
	defer func() { Number = had }()
	for _, c := range []struct {
		own, other string
		want       bool
	}{
		{"0.2.0", "0.2.0", false},
		{"0.2.0", "0.1.0", true},
		{"0.2.0", Unknown, true},
		{Unknown, "0.1.0", false},
	} {
		Number = c.own
		if Differs(c.other) != c.want {
			t.Errorf("a program of %s beside %s: want %v", c.own, c.other, c.want)
		}
	}
}
