// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package slurmdb writes a job's AdminComment or Extra through Slurm's own library, which keeps the text as
// it is. The library is loaded when it is needed, and used only if it is of the Slurm release
// that this was built for.
package slurmdb

// #cgo CFLAGS: -std=gnu11 -Wall -Wextra
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "admincomment.h"
import "C"

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

var (
	// ErrNoLibrary says that Slurm's library is missing or of another release.
	ErrNoLibrary = errors.New("no usable Slurm library")
	// ErrNoDatabase says that slurmdbd cannot be reached, or did not do as it was told.
	ErrNoDatabase = errors.New("slurmdbd has not written it")
	// ErrNoRow says that the run has no row that can be named alone.
	ErrNoRow = errors.New("slurmdbd has no such row")
)

// ChangedError says that the text was changed since it was read.
type ChangedError struct{ Is string }

func (e *ChangedError) Error() string { return "it was changed meanwhile" }

// Row names one run of a job, as sacct prints it.
type Row struct {
	JobID   string // 123, 123_4 or 123+1
	Cluster string
	State   string
	Submit  time.Time
	End     time.Time
}

// Connection is one to slurmdbd. Slurm's library prints to stderr and ends the process if it does not like
// slurm.conf, so this is for a process that may end.
type Connection struct {
	db     *C.struct_vgpu_dbd
	closed chan struct{}
}

// hurryEvery is how long an acknowledgement may be held back on the connection.
const hurryEvery = time.Millisecond

// Open connects; the library is one from Library.
func Open(library string) (*Connection, error) {
	cLibrary := C.CString(library)
	defer C.free(unsafe.Pointer(cLibrary))
	var why [512]C.char
	c := &Connection{closed: make(chan struct{})}
	switch C.vgpu_dbd_open(cLibrary, &c.db, &why[0], C.size_t(len(why))) {
	case C.VGPU_DBD_OK:
		go c.hurry()
		return c, nil
	case C.VGPU_DBD_NO_LIBRARY:
		return nil, fmt.Errorf("connect to slurmdbd: %w: %s", ErrNoLibrary, C.GoString(&why[0]))
	}
	return nil, fmt.Errorf("connect to slurmdbd: %w: %s", ErrNoDatabase, C.GoString(&why[0]))
}

// Close ends the connection.
func (c *Connection) Close() {
	close(c.closed)
	C.vgpu_dbd_close(c.db)
}

func (c *Connection) hurry() {
	tick := time.NewTicker(hurryEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.closed:
			return
		case <-tick.C:
			C.vgpu_dbd_hurry(64)
		}
	}
}

// Fields of a row that can be changed, by sacct's names.
const (
	FieldAdminComment = "AdminComment"
	FieldExtra        = "Extra"
)

// HasExtra says whether the Slurm that this was built for has the field Extra: 22.05 has not.
func HasExtra() bool { return bool(C.vgpu_dbd_has_extra()) }

// SetText changes a field of one row from was to text: of that row and no other, and only if it still is was
// (else ChangedError).
func (c *Connection) SetText(row Row, field, was, text string) error {
	which, ok := map[string]C.enum_vgpu_dbd_field{FieldAdminComment: C.VGPU_DBD_ADMIN_COMMENT, FieldExtra: C.VGPU_DBD_EXTRA}[field]
	if !ok {
		return fmt.Errorf("write %q of job %s: want %s or %s", field, row.JobID, FieldAdminComment, FieldExtra)
	}
	job, task, component, err := parseJobID(row.JobID)
	if err != nil {
		return err
	}
	cCluster, cState, cWas, cText := C.CString(row.Cluster), C.CString(row.State), C.CString(was), C.CString(text)
	for _, s := range []*C.char{cCluster, cState, cWas, cText} {
		defer C.free(unsafe.Pointer(s))
	}
	cRow := C.struct_vgpu_dbd_row{job: C.uint32_t(job), task: C.int64_t(task), component: C.int64_t(component),
		cluster: cCluster, state: cState, submit: C.int64_t(row.Submit.Unix()), end: C.int64_t(row.End.Unix())}
	var why [512]C.char
	var is *C.char
	switch C.vgpu_dbd_set_text(c.db, &cRow, which, cWas, cText, &is, &why[0], C.size_t(len(why))) {
	case C.VGPU_DBD_OK:
		return nil
	case C.VGPU_DBD_CHANGED:
		return &ChangedError{Is: C.GoString(is)}
	case C.VGPU_DBD_NO_ROW:
		return fmt.Errorf("write %s of job %s: %w: %s", field, row.JobID, ErrNoRow, C.GoString(&why[0]))
	}
	return fmt.Errorf("write %s of job %s: %w: %s", field, row.JobID, ErrNoDatabase, C.GoString(&why[0]))
}

// parseJobID takes a job id apart; task and component are -1 where there is none.
func parseJobID(text string) (job uint32, task, component int64, err error) {
	number, part, separator := text, "", ""
	for _, s := range []string{"_", "+"} {
		if before, after, ok := strings.Cut(text, s); ok {
			number, part, separator = before, after, s
		}
	}
	task, component = -1, -1
	id, err := strconv.ParseUint(number, 10, 32)
	if err == nil && separator != "" {
		var n uint64
		n, err = strconv.ParseUint(part, 10, 31)
		if separator == "_" {
			task = int64(n)
		} else {
			component = int64(n)
		}
	}
	if err != nil || id == 0 {
		return 0, 0, 0, fmt.Errorf("read job id %q: want 123, 123_4 or 123+1", text)
	}
	return uint32(id), task, component, nil
}

// Library finds the Slurm library that a Slurm command (sacctmgr) itself uses, so that there is no
// second place to configure, and makes sure that it is of the release that this was built for. The
// library stays loaded. The error wraps ErrNoLibrary.
func Library(ctx context.Context, command string) (string, error) {
	path, err := libraryOf(command)
	if err != nil {
		return "", err
	}
	// The library does not tell its release, only an interface number that no header has.
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, command, "--version")
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	if conf := os.Getenv("SLURM_CONF"); conf != "" { //nolint:forbidigo // even --version reads it
		cmd.Env = append(cmd.Env, "SLURM_CONF="+conf)
	}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: ask %s for its version: %w", ErrNoLibrary, command, err)
	}
	if builtFor := release(uint32(C.vgpu_dbd_built_for())); !strings.Contains(string(out), " "+builtFor+".") {
		return "", fmt.Errorf("%w: %s is of %s, this program was built for Slurm %s", ErrNoLibrary, command, strings.TrimSpace(string(out)), builtFor)
	}
	cLibrary := C.CString(path)
	defer C.free(unsafe.Pointer(cLibrary))
	var why [512]C.char
	if C.vgpu_dbd_probe(cLibrary, &why[0], C.size_t(len(why))) != C.VGPU_DBD_OK {
		return "", fmt.Errorf("%w: %s", ErrNoLibrary, C.GoString(&why[0]))
	}
	return path, nil
}

// release is the major and minor part of a packed version: "22.05".
func release(version uint32) string {
	return fmt.Sprintf("%d.%02d", version>>16&0xff, version>>8&0xff)
}

// libraryOf reads it out of the command's dynamic section.
func libraryOf(command string) (string, error) {
	file, err := elf.Open(command)
	if err != nil {
		return "", fmt.Errorf("find Slurm's library: %w: %w", ErrNoLibrary, err)
	}
	defer file.Close()
	needed, err := file.ImportedLibraries()
	if err != nil {
		return "", fmt.Errorf("find Slurm's library of %s: %w: %w", command, ErrNoLibrary, err)
	}
	for _, name := range needed {
		if !strings.HasPrefix(name, "libslurm") {
			continue
		}
		for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
			values, _ := file.DynString(tag)
			for dir := range strings.SplitSeq(strings.Join(values, ":"), ":") {
				dir = strings.ReplaceAll(dir, "$ORIGIN", filepath.Dir(command))
				path := filepath.Join(dir, name)
				if _, err := os.Stat(path); err == nil && filepath.IsAbs(path) {
					return path, nil
				}
			}
		}
		return name, nil // where the dynamic linker finds it
	}
	return "", fmt.Errorf("find Slurm's library: %w: %s uses none", ErrNoLibrary, command)
}
