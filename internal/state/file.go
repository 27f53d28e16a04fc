// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"

	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

const (
	// Version is the layout of state.json.
	Version = 2
	// maxFileBytes bounds state.json: some hundred thousand slices.
	maxFileBytes = 64 << 20
	// corruptKept is how many damaged files are kept for whoever wants to know.
	corruptKept = 5
)

// file is state.json, with each slice on a line.
type file struct {
	Version  int       `json:"version"`
	BootID   string    `json:"boot_id"`
	Checksum string    `json:"checksum"`
	GPUs     []gpu     `json:"gpus"`
	Columns  []string  `json:"columns"`
	Slices   [][]int64 `json:"slices"`
}

// header is the first line. The checksum is of what goes wrong by itself, a file that is not all there or that somebody has changed
// by hand: only root writes here.
func header(bootID string, body []byte) ([]byte, error) {
	boot, err := json.Marshal(bootID)
	table := crc32.MakeTable(crc32.Castagnoli)
	return fmt.Appendf(nil, "{\"version\":%d,\"boot_id\":%s,\"checksum\":\"crc32c:%08x\",\n", Version, boot, crc32.Update(crc32.Checksum(boot, table), table, body)), err
}

// lines is a list with each element on a line: for people, diff, and the script that asks before the package goes.
func lines[T any](list []T) ([]byte, error) {
	text := []byte{'['}
	for i, element := range list {
		line, err := json.Marshal(element)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(text, '\n'), line...)
	}
	return append(text, "\n]"...), nil
}

// encode takes a table with all GPUs that the slices are on.
func encode(state State, gpus []gpu) ([]byte, error) {
	rows := make([][]int64, len(state.Slices))
	for i := range state.Slices {
		s := &state.Slices[i]
		rows[i] = s.row(slices.Index(gpus, s.on()))
	}
	table, tableErr := lines(gpus)
	names, namesErr := json.Marshal(columns)
	list, listErr := lines(rows)
	body := fmt.Appendf(nil, "\"gpus\":%s,\n\"columns\":%s,\n\"slices\":%s}\n", table, names, list)
	first, err := header(state.BootID, body)
	return append(first, body...), errors.Join(tableErr, namesErr, listErr, err)
}

func decode(data []byte) (State, []gpu, error) {
	var f file
	err := json.Unmarshal(data, &f)
	// Before all else: a later version may have other fields, and compute the checksum otherwise.
	if f.Version > Version {
		return State{}, nil, fmt.Errorf("%w: %d, this release reads %d", ErrVersion, f.Version, Version)
	}
	if err != nil {
		return State{}, nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	_, body, _ := bytes.Cut(data, []byte{'\n'})
	first, err := header(f.BootID, body)
	if err != nil || !bytes.HasPrefix(data, first) {
		return State{}, nil, fmt.Errorf("%w: its checksum is not that of its content", ErrCorrupt)
	}
	if len(f.Columns) > len(columns) || !slices.Equal(f.Columns, columns[:len(f.Columns)]) {
		return State{}, nil, fmt.Errorf("%w: its columns are %v", ErrCorrupt, f.Columns)
	}
	state := State{BootID: f.BootID, Slices: make([]Slice, len(f.Slices))}
	for i, row := range f.Slices {
		var ok bool
		if state.Slices[i], ok = ofRow(row, f.GPUs); !ok || len(row) > len(f.Columns) {
			return State{}, nil, fmt.Errorf("%w: slices[%d] is none: %v", ErrCorrupt, i, row)
		}
	}
	return state, f.GPUs, nil
}

// read returns the state file's content. Untrusted and damaged files are ErrCorrupt, both.
func read(path string) (State, []gpu, error) {
	data, err := trusted.ReadFile(path, maxFileBytes)
	if errors.Is(err, trusted.ErrUntrusted) {
		return State{}, nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err != nil {
		return State{}, nil, err
	}
	state, gpus, err := decode(data)
	if err != nil {
		return State{}, nil, fmt.Errorf("read %s: %w", path, err)
	}
	return state, gpus, nil
}

// write replaces the state file in one step. A process that dies anywhere in here leaves the old
// file or the new one, and at worst a temporary one that the next writer removes.
func write(path string, state State, gpus []gpu) error {
	data, err := encode(state, gpus)
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
	slices.Sort(old) // the time in the name sorts
	for _, name := range old[:max(0, len(old)-corruptKept)] {
		os.Remove(name) // a link itself, never what it points at; a full folder stays
	}
	return aside, nil
}

// sweepTemporaries removes what writers left that were killed. Only the holder of the lock may.
func sweepTemporaries(path string) {
	always := func(time.Time) bool { return true }
	for _, left := range trusted.Temporaries(filepath.Dir(path), always, func(name string) bool { return name == filepath.Base(path) }) {
		os.Remove(left)
	}
}
