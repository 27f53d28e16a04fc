// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

const (
	// Version is the layout of state.json.
	Version = 1
	// maxFileBytes bounds state.json: some hundred thousand slices.
	maxFileBytes = 64 << 20
	// corruptKept is how many damaged files are kept for whoever wants to know.
	corruptKept = 5
)

// file is state.json. The checksum covers all the rest, as it stands in the file.
type file struct {
	Version  int             `json:"version"`
	BootID   string          `json:"boot_id"`
	Checksum string          `json:"checksum"`
	Slices   json.RawMessage `json:"slices"`
}

func (f file) sum() string {
	hash := sha256.New()
	fmt.Fprintf(hash, "%d\n%s\n", f.Version, f.BootID)
	hash.Write(f.Slices)
	return "sha256:" + hex.EncodeToString(hash.Sum(nil))
}

// encode puts one slice on a line: for people, and for diff.
func encode(bootID string, slices []Slice) ([]byte, error) {
	var list bytes.Buffer
	list.WriteString("[")
	for i, s := range slices {
		line, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			list.WriteByte(',')
		}
		list.WriteByte('\n')
		list.Write(line)
	}
	list.WriteString("\n]")
	f := file{Version: Version, BootID: bootID, Slices: list.Bytes()}
	boot, err := json.Marshal(bootID)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "{\"version\":%d,\"boot_id\":%s,\"checksum\":%q,\n\"slices\":%s}\n",
		f.Version, boot, f.sum(), f.Slices), nil
}

func decode(data []byte) (State, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return State{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	// Before the checksum: a later version may compute it otherwise.
	if f.Version > Version {
		return State{}, fmt.Errorf("%w: %d, this release knows %d", ErrVersion, f.Version, Version)
	}
	if f.Version != Version {
		return State{}, fmt.Errorf("%w: version %d", ErrCorrupt, f.Version)
	}
	if f.Checksum != f.sum() {
		return State{}, fmt.Errorf("%w: its checksum is not that of its content", ErrCorrupt)
	}
	s := State{BootID: f.BootID}
	if err := json.Unmarshal(f.Slices, &s.Slices); err != nil {
		return State{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	for i, slice := range s.Slices {
		if slice.Job == 0 || slice.Device == "" || slice.MemMiB <= 0 {
			return State{}, fmt.Errorf("%w: slices[%d] is none: %+v", ErrCorrupt, i, slice)
		}
	}
	return s, nil
}

// read returns the state file's content. Untrusted and damaged files are ErrCorrupt, both.
func read(path string) (State, error) {
	data, err := trusted.ReadFile(path, maxFileBytes)
	if errors.Is(err, trusted.ErrUntrusted) {
		return State{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err != nil {
		return State{}, err
	}
	s, err := decode(data)
	if err != nil {
		return State{}, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}

// write replaces the state file in one step. A process that dies anywhere in here leaves the old
// file or the new one, and at worst a temporary one that the next writer removes.
func write(path, bootID string, slices []Slice) error {
	data, err := encode(bootID, slices)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	crashpoint.At("state/before-write")
	// Not through TMPDIR, which may be a folder of everybody's.
	pending, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)),
		renameio.WithPermissions(0o644), renameio.IgnoreUmask())
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	defer pending.Cleanup()
	crashpoint.At("state/temp-created")
	half := len(data) / 2
	if _, err := pending.Write(data[:half]); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	crashpoint.At("state/half-written")
	if _, err := pending.Write(data[half:]); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	crashpoint.At("state/before-rename")
	if err := pending.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	crashpoint.At("state/renamed")
	return nil
}

// moveAside keeps a damaged state file, whatever it is, under another name.
func moveAside(path string, now time.Time) (string, error) {
	aside := path + ".corrupt-" + now.UTC().Format("20060102T150405.000000000Z")
	if err := os.Rename(path, aside); err != nil {
		return "", fmt.Errorf("move %s aside: %w", path, err)
	}
	old, err := filepath.Glob(path + ".corrupt-*")
	if err != nil {
		return aside, nil //nolint:nilerr // older ones stay
	}
	sort.Strings(old) // the time in the name sorts
	for _, name := range old[:max(0, len(old)-corruptKept)] {
		os.Remove(name) // a link itself, never what it points at; a full folder stays
	}
	return aside, nil
}

// sweepTemporaries removes what writers left that were killed. Only the holder of the lock may.
func sweepTemporaries(path string) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "."+filepath.Base(path)) {
			os.Remove(filepath.Join(filepath.Dir(path), entry.Name()))
		}
	}
}
