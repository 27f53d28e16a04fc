// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

const (
	// Version is the layout of state.json. One of an older release is read, and written as this release writes.
	Version = 2
	// maxFileBytes bounds state.json: some hundred thousand slices.
	maxFileBytes = 64 << 20
	// corruptKept is how many damaged files are kept for whoever wants to know.
	corruptKept = 5
)

// image is what the state file says and, where it stood in one, the row of each slice: one that does
// not change is written again as it stands there.
type image struct {
	State
	text
	rows []span // as many as there are slices; empty: to be made
}

// text is what the rows of a state file are read from.
type text struct {
	gpus places[gpu] // as they stand there, and more
	list []byte      // with all rows
}

// span is where a row stands in the list.
type span struct{ from, to uint32 }

var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// header is the first line. The checksum is of what goes wrong by itself, a file that is not all there or that somebody has changed
// by hand: only root writes here. Processors have CRC-32C.
func header(boot []byte, body ...[]byte) []byte {
	sum := crc32.Update(0, castagnoli(), boot)
	for _, part := range body {
		sum = crc32.Update(sum, castagnoli(), part)
	}
	return fmt.Appendf(nil, "{\"version\":%d,\"boot_id\":%s,\"checksum\":\"crc32c:%08x\",\n", Version, boot, sum)
}

// encode puts one slice on a line: for people, and for diff. Its parts are the file one after another; rows that stood one after
// another stay one part, where they are.
func (i image) encode() (parts [][]byte, err error) {
	boot, err := json.Marshal(i.BootID)
	if err != nil {
		return nil, err
	}
	if len(i.gpus.keys) > maxGPUs {
		i.gpus, i.rows = places[gpu]{}, make([]span, len(i.Slices))
	}
	rows := i.encodeRows()
	gpus := []byte(gpusBegin)
	for n, gpu := range i.gpus.keys {
		line, err := json.Marshal(gpu)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			gpus = append(gpus, ',')
		}
		gpus = append(append(gpus, '\n'), line...)
	}
	parts = append([][]byte{nil, append(gpus, listEnds+lineEnds+columnsOf(i.Slices)+slicesBegin...)}, rows...)
	parts = append(parts, []byte(listEnds+bodyEnds))
	parts[0] = header(boot, parts[1:]...)
	return parts, nil
}

// encodeRows enters into the table what it lacks.
func (i *image) encodeRows() (parts [][]byte) {
	between := []byte("\n")
	var made []byte
	for n := 0; n < len(i.Slices); {
		at := i.rows[n]
		n++
		var row []byte
		if at == (span{}) {
			from := len(made)
			made = appendRow(made, &i.Slices[n-1], &i.gpus)
			row = made[from:]
		} else {
			for ; n < len(i.Slices) && i.rows[n].from == at.to+uint32(len(lineEnds)); n++ {
				at.to = i.rows[n].to
			}
			row = i.list[at.from:at.to]
		}
		parts = append(parts, between, row)
		between = []byte(lineEnds)
	}
	return parts
}

func decode(data []byte) (image, error) {
	if first, body, ok := bytes.Cut(data, []byte{'\n'}); ok {
		boot, ok := cutHeader(first)
		if ok && bytes.Equal(header(boot, body), data[:len(first)+1]) {
			i, err := cutBody(body)
			if err == nil {
				err = json.Unmarshal(boot, &i.BootID)
			}
			if err != nil {
				return image{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
			}
			return i, nil
		}
	}
	return decodeOther(data)
}

// cutHeader finds the boot id, as it stands there.
func cutHeader(line []byte) (boot []byte, ok bool) {
	const before = `{"version":2,"boot_id":`
	rest, ours := bytes.CutPrefix(line, []byte(before))
	boot, _, found := bytes.Cut(rest, []byte(`,"checksum":"`))
	return boot, ours && found
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
	parts, err := i.encode()
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
	if err := writeParts(pending, parts[:len(parts)-1]); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	crashpoint.At("state/half-written")
	if _, err := pending.Write(parts[len(parts)-1]); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	crashpoint.At("state/before-rename")
	if err := pending.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	crashpoint.At("state/renamed")
	return nil
}

func writeParts(to io.Writer, parts [][]byte) error {
	buffered := bufio.NewWriter(to) // long parts go past it
	for _, part := range parts {
		if _, err := buffered.Write(part); err != nil {
			return err
		}
	}
	return buffered.Flush()
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
