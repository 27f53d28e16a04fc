// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

static int start_cuda(void *init)
{
	return ((int (*)(unsigned int))init)(0);
}
*/
import "C"

import (
	"fmt"
	"os"
	"strings"
	"unsafe"

	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
)

// Results of a try of CUDA in a container.
const (
	limited = "limited"
	closed  = "closed"
	open    = "OPEN"
)

// notPermitted is CUDA_ERROR_NOT_PERMITTED, which the library returns where it finds no limits.
const notPermitted = 800

// probeCommand is what runs in each container.
func probeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "probe-cuda", Hidden: true, Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			verdict, why := probeCUDA()
			fmt.Fprintln(command.OutOrStdout(), probeLine(verdict, why))
			return nil
		},
	}
}

const probeMark = "vgpu-gres probe: "

func probeLine(verdict, why string) string { return probeMark + verdict + "|" + why }

// readProbe finds that line in all that a runtime printed.
func readProbe(out string) (verdict, why string, found bool) {
	_, line, found := strings.Cut(out, probeMark)
	line, _, _ = strings.Cut(line, "\n")
	verdict, why, _ = strings.Cut(strings.TrimRight(line, "\r"), "|")
	return verdict, why, found
}

// probeCUDA starts CUDA as a program does, and looks whether the library has come along.
func probeCUDA() (verdict, why string) {
	name, function := C.CString(device.LibraryCUDA), C.CString("cuInit")
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(function))
	handle := C.dlopen(name, C.RTLD_NOW)
	if handle == nil {
		return closed, C.GoString(C.dlerror())
	}
	init := C.dlsym(handle, function)
	if init == nil {
		return closed, C.GoString(C.dlerror())
	}
	result := C.start_cuda(init)
	maps, err := os.ReadFile("/proc/self/maps")
	switch {
	case result == notPermitted:
		return closed, "CUDA is not permitted"
	case err != nil:
		return open, err.Error()
	case strings.Contains(string(maps), "/"+grant.LibraryFile):
		return limited, ""
	}
	return open, fmt.Sprintf("%s is loaded without %s", device.LibraryCUDA, grant.LibraryFile)
}
