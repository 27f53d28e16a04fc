// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package slurmdb writes a job's AdminComment through Slurm's own library, which keeps the text as
// it is. The library is loaded when it is needed, and believed only if it is of the Slurm release
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
	// ErrNotWritten says that slurmdbd could not be reached or did not change the job.
	ErrNotWritten = errors.New("slurmdbd has not written it")
)

// SetAdminComment sets the AdminComment of a job as sacct prints it: 123, 123_4 or 123+1. The library
// is one from Library.
//
// Slurm's library prints to stderr and ends the process if it does not like slurm.conf, so this is
// for a process that may end.
func SetAdminComment(library, jobID, cluster, text string) error {
	job, task, component, err := parseJobID(jobID)
	if err != nil {
		return err
	}
	cLibrary, cCluster, cText := C.CString(library), C.CString(cluster), C.CString(text)
	defer C.free(unsafe.Pointer(cLibrary))
	defer C.free(unsafe.Pointer(cCluster))
	defer C.free(unsafe.Pointer(cText))
	var why [512]C.char
	switch C.vgpu_dbd_set_admin_comment(cLibrary, C.uint32_t(job), C.int64_t(task), C.int64_t(component),
		cCluster, cText, &why[0], C.size_t(len(why))) {
	case C.VGPU_DBD_OK:
		return nil
	case C.VGPU_DBD_NO_LIBRARY:
		return fmt.Errorf("write admin comment of job %s: %w: %s", jobID, ErrNoLibrary, C.GoString(&why[0]))
	default:
		return fmt.Errorf("write admin comment of job %s: %w: %s", jobID, ErrNotWritten, C.GoString(&why[0]))
	}
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
	if conf := os.Getenv("SLURM_CONF"); conf != "" { // even --version reads it
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
			for _, dir := range strings.Split(strings.Join(values, ":"), ":") {
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
