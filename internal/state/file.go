// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
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
	// bytesPerSlice is about what a slice takes in state.json.
	bytesPerSlice = 256
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

// sumBytes is how long a checksum is in the file.
const sumBytes = len("sha256:") + 2*sha256.Size

// image is what the state file says and, where encode wrote it, the line of each slice: one that does
// not change is written again as it stands there.
type image struct {
	State
	lines [][]byte // as many as there are slices; nil: to be made
}

// encode puts one slice on a line: for people, for diff, and for decodeOurs.
func (i image) encode() ([]byte, error) {
	boot, err := json.Marshal(i.BootID)
	if err != nil {
		return nil, err
	}
	size := 256
	for _, line := range i.lines {
		size += max(len(line)+2, bytesPerSlice)
	}
	data := fmt.Appendf(make([]byte, 0, size), "{\"version\":%d,\"boot_id\":%s,\"checksum\":\"", Version, boot)
	sum := len(data)
	data = append(append(data, make([]byte, sumBytes)...), headerSlices...)
	list := len(data)
	data = append(data, '[')
	for n, s := range i.Slices {
		line := i.lines[n]
		if line == nil {
			if line, err = json.Marshal(s); err != nil {
				return nil, err
			}
		}
		if n > 0 {
			data = append(data, ',')
		}
		data = append(append(data, '\n'), line...)
	}
	data = append(data, listEnds...)
	copy(data[sum:], file{Version: Version, BootID: i.BootID, Slices: data[list:]}.sum())
	return append(data, trailer...), nil
}

func decode(data []byte) (image, error) {
	if i, ok := decodeOurs(data); ok {
		return i, nil
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return image{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	// Before the checksum: a later version may compute it otherwise.
	if f.Version > Version {
		return image{}, fmt.Errorf("%w: %d, this release knows %d", ErrVersion, f.Version, Version)
	}
	if f.Version != Version {
		return image{}, fmt.Errorf("%w: version %d", ErrCorrupt, f.Version)
	}
	if f.Checksum != f.sum() {
		return image{}, fmt.Errorf("%w: its checksum is not that of its content", ErrCorrupt)
	}
	i := image{State: State{BootID: f.BootID}}
	if err := json.Unmarshal(f.Slices, &i.Slices); err != nil {
		return image{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	for n := range i.Slices {
		if !i.Slices[n].holds() {
			return image{}, fmt.Errorf("%w: slices[%d] is none: %+v", ErrCorrupt, n, i.Slices[n])
		}
	}
	i.lines = make([][]byte, len(i.Slices))
	return i, nil
}

// holds is false of what no writer would have granted.
func (s *Slice) holds() bool { return s.Job != 0 && s.Device != "" && s.MemMiB > 0 }

// read returns the state file's content. Untrusted and damaged files are ErrCorrupt, both.
func read(path string) (image, error) {
	data, err := trusted.ReadFile(path, maxFileBytes)
	if errors.Is(err, trusted.ErrUntrusted) {
		return image{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err != nil {
		return image{}, err
	}
	i, err := decode(data)
	if err != nil {
		return image{}, fmt.Errorf("read %s: %w", path, err)
	}
	return i, nil
}

// write replaces the state file in one step. A process that dies anywhere in here leaves the old
// file or the new one, and at worst a temporary one that the next writer removes.
func write(path string, i image) error {
	data, err := i.encode()
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
