// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every prolog leaves it, and hardly ever does it change.
func TestTheCommandLineIsWrittenOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prolog.json")
	write := func(argument string) os.FileInfo {
		t.Helper()
		command := PrologCommand{Argv: []string{"/bin/true", argument}, Env: []string{"SLURM_CONF=/x"}}
		if err := WriteProlog(path, command); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(path); err != nil || strings.Index(string(text), "\n") != len(text)-1 {
			t.Errorf("it is not one line: %q, %v", text, err)
		}
		if got, err := ReadProlog(path); err != nil || !cmp.Equal(got, command) {
			t.Errorf("read %+v, %v", got, err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first := write("a")
	if first.Mode() != 0o644 {
		t.Errorf("mode %v", first.Mode())
	}
	if !os.SameFile(first, write("a")) {
		t.Error("the same was written again")
	}
	if os.SameFile(first, write("b")) {
		t.Error("another one was not written")
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if info := write("b"); info.Mode() != 0o644 {
		t.Errorf("others may still write it: %v", info.Mode())
	}
}

func TestACommandLineThatIsNoneIsNotRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prolog.json")
	for _, text := range []string{"", "{", "[]", "{}", `{"argv":[]}`, `{"argv":["true"]}`, `{"argv":["/does/not/exist"]}`, `{"argv":["/bin"]}`} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadProlog(path); err == nil || os.IsNotExist(err) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}
