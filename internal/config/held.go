// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// Standing says by which file a node's configuration holds.
type Standing int

const (
	AsWritten  Standing = iota
	ByLastGood          // the file is not believed: the last good one holds, all of it
	Unknown             // nor is there a last good one
)

// String is for the log, before what is wrong with the file.
func (s Standing) String() string {
	switch s {
	case ByLastGood:
		return "the configuration cannot be used, the last good copy holds"
	case Unknown:
		return "the configuration cannot be used, and there is no good copy"
	case AsWritten:
	}
	return "the configuration is as written"
}

// LastGood is where the last copy of a configuration is kept that was right in all its keys. The usual one's is in the usual spool
// folder, wherever spool_dir is: the line that names another folder may be the wrong one.
func LastGood(path string) string {
	if path == DefaultPath {
		return filepath.Join(Default().SpoolDir, filepath.Base(path))
	}
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".last")
}

// Held is the configuration by which a node goes, and why it is this one.
type Held struct {
	Config   Config
	Standing Standing
	Problems []*Problem // why the file is not believed
	IsFile   bool       // there is a file
	KeptAt   time.Time  // ByLastGood: when the copy was made
}

// Holds says what holds in place of a file that cannot be used.
func (h Held) Holds() string {
	if h.Standing == ByLastGood {
		return h.Standing.String() + " (" + h.KeptAt.Local().Format(time.DateTime) + ")"
	}
	return h.Standing.String()
}

// Err is everything that is wrong with the file, and what holds in its place; nil where it is as written.
func (h Held) Err() error {
	var errs []error
	for _, problem := range h.Problems {
		errs = append(errs, fmt.Errorf("%s: %w", h.Holds(), problem))
	}
	return errors.Join(errs...)
}

// LoadHeld reads a configuration file for a program that must go on. No key of a file with anything wrong in it falls to its default,
// which may be softer than what the site has written: the last good copy holds instead, and the problems say why. A file that is gone
// is such a file, if there was one. Where there is no good copy the defaults are returned, as Unknown.
func LoadHeld(path string) Held {
	h := Held{IsFile: true}
	h.Config, h.Problems = LoadLenient(path)
	last := LastGood(path)
	kept, missing := os.Lstat(last)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		h.IsFile = false
		if errors.Is(missing, fs.ErrNotExist) {
			return h
		}
		h.Problems = []*Problem{{File: path, Reason: "the file is gone", Accepted: "an empty file, for the defaults"}}
	}
	if len(h.Problems) == 0 {
		return h
	}
	h.Standing = Unknown
	if missing == nil {
		good, more := LoadLenient(last)
		more = slices.DeleteFunc(more, func(p *Problem) bool { return gone[p.Key] != "" }) // the build that made the copy had them: nothing falls to a default
		if len(more) == 0 {
			h.Config, h.Standing, h.KeptAt = good, ByLastGood, kept.ModTime()
			return h
		}
		h.Problems = append(h.Problems, more...)
	}
	return h
}

// Keep makes a configuration that was right in all its keys the last good one. Root does so.
func Keep(path string) error {
	data, err := trusted.ReadFile(path, maxFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		if _, problems := parse(path, data); len(problems) > 0 { // it was changed meanwhile
			return nil
		}
		last := LastGood(path)
		if known, err := trusted.ReadFile(last, maxFileBytes); err == nil && bytes.Equal(known, data) {
			return nil
		}
		if err = os.MkdirAll(filepath.Dir(last), 0o755); err == nil {
			err = trusted.WriteFile(last, data, 0o644)
		}
	}
	if err != nil {
		return fmt.Errorf("keep a copy of %s: %w", path, err)
	}
	return nil
}
