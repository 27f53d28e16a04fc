// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
)

func TestFileIsAppendedTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for range 2 {
		log, closer, err := New("vgpu-prolog", config.Log{Format: config.FormatJSON, File: path})
		if err != nil {
			t.Fatal(err)
		}
		log.Info("slice granted", "job", 7, "mem_mib", 3000)
		log.Debug("not at this level")
		if err := closer.Close(); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2: %s", len(lines), data)
	}
	var line map[string]any
	if err := json.Unmarshal([]byte(lines[1]), &line); err != nil {
		t.Fatal(err)
	}
	if line["@message"] != "slice granted" || line["mem_mib"] != 3000.0 || line["@timestamp"] == nil {
		t.Errorf("got %v", line)
	}
	if st, _ := os.Stat(path); st.Mode().Perm()&0o027 != 0 {
		t.Errorf("mode %v lets others read or write", st.Mode())
	}
}

func TestHostileFileIsRefusedAndLoggingGoesOn(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, dir, filepath.Join(dir, "no", "folder")} {
		log, closer, err := New("x", config.Log{File: path})
		if err == nil {
			t.Errorf("%s was opened", path)
		}
		if log == nil || closer.Close() != nil {
			t.Errorf("%s: no usable logger", path)
		}
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("the link was followed")
	}
}

func TestLevelFollowsTheDestinationUnlessConfigured(t *testing.T) {
	toFile := filepath.Join(t.TempDir(), "log")
	for _, tc := range []struct {
		log      config.Log
		infoSeen bool
	}{
		{config.Log{}, false},
		{config.Log{Level: "info"}, true},
		{config.Log{File: toFile}, true},
		{config.Log{File: toFile, Level: "error"}, false},
	} {
		log, closer, err := New("x", tc.log)
		if err != nil {
			t.Fatal(err)
		}
		if log.IsInfo() != tc.infoSeen {
			t.Errorf("%+v: info seen %v, want %v", tc.log, log.IsInfo(), tc.infoSeen)
		}
		closer.Close()
	}
}

// A log is read in a terminal.
func TestALineCommandsNoTerminal(t *testing.T) {
	for _, format := range []string{config.FormatJSON, ""} {
		path := filepath.Join(t.TempDir(), "log")
		log, closer, err := New("vgpu-prolog", config.Log{Format: format, File: path})
		if err != nil {
			t.Fatal(err)
		}
		log.Info("job refused", "reason", "x\x1b[2J\u009b31m\n\x1b]0;owned\x07\u202e")
		if err := closer.Close(); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if at := strings.IndexFunc(string(data), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); at >= 0 || !strings.Contains(string(data), "owned") {
			t.Errorf("format %q: at %d of %q", format, at, data)
		}
	}
}
