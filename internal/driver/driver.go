// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package driver finds the files of the NVIDIA driver's libraries that programs of this node load.
package driver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// Cache is what the dynamic linker looks libraries up in, written by ldconfig(8).
const Cache = "/etc/ld.so.cache"

// As glibc writes its cache since 2.2 (elf/cache.c, sysdeps/generic/dl-cache.h): a header of 48 bytes, an entry of 24 bytes for each
// library, texts. Up to 2.31 an older table, which names its number of entries, may come before it.
const (
	oldMagic    = "ld.so-1.7.0"
	magic       = "glibc-ld.so.cache1.1"
	headerBytes = 48
	entryBytes  = 24
	oldEntry    = 12
	oldHeader   = 16
	maxBytes    = 64 << 20
)

// native are the flags of this machine's own libraries (sysdeps/generic/ldconfig.h); 32-bit ones have others.
var native = map[string]int32{"amd64": 0x0303, "arm64": 0x0a03}

// others are the driver's libraries for OpenCL, and for OpenGL and Vulkan, by what their names begin with: those that a loader
// opens, and those that these need. Video (libnvcuvid, libnvidia-encode) and OptiX take their memory from CUDA.
var others = []string{
	"libnvidia-opencl.so.1", "libGLX_nvidia.so.0", "libEGL_nvidia.so.0", "libnvidia-glcore.so.", "libnvidia-eglcore.so.",
	"libnvidia-vksc-core.so.",
}

var errCache = errors.New("not a cache of the dynamic linker")

// Find lists the files behind CUDA's and NVML's names in a cache, and those of other ways to the GPU, in the dynamic linker's
// order. A node without a driver has none. An error is about what is missing in the list.
func Find(cache string) ([]device.DriverLibrary, error) {
	data, err := read(cache)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the driver's libraries: %w", err)
	}
	entries, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("find the driver's libraries in %s: %w", cache, err)
	}
	var found []device.DriverLibrary
	var wrong []error
	for _, entry := range entries {
		file, err := filepath.EvalSymlinks(entry.File)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone since ldconfig ran
		}
		if err == nil {
			err = isRoots(file)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("find the driver's libraries: %w", err))
			continue
		}
		if library := (device.DriverLibrary{SONAME: entry.SONAME, File: file, Other: entry.Other}); !slices.Contains(found, library) {
			found = append(found, library)
		}
	}
	return found, errors.Join(wrong...)
}

func read(cache string) ([]byte, error) {
	file, err := os.Open(cache)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err == nil && len(data) > maxBytes {
		err = fmt.Errorf("%s has more than %d bytes", cache, maxBytes)
	}
	return data, err
}

// isRoots: what is mounted into every step must be root's alone.
func isRoots(file string) error {
	var st unix.Stat_t
	if err := unix.Lstat(file, &st); err != nil {
		return &os.PathError{Op: "stat", Path: file, Err: err}
	}
	if st.Uid != 0 || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s is not a file that root alone can write", file)
	}
	return nil
}

func parse(data []byte) ([]device.DriverLibrary, error) {
	if bytes.HasPrefix(data, []byte(oldMagic)) && len(data) >= oldHeader {
		skip := oldHeader + oldEntry*int64(binary.NativeEndian.Uint32(data[oldHeader-4:]))
		skip = (skip + 7) &^ 7 // the newer table is aligned
		if skip > int64(len(data)) {
			return nil, errCache
		}
		data = data[skip:]
	}
	if !bytes.HasPrefix(data, []byte(magic)) || len(data) < headerBytes {
		return nil, errCache
	}
	count := int64(binary.NativeEndian.Uint32(data[len(magic):]))
	if headerBytes+count*entryBytes > int64(len(data)) {
		return nil, errCache
	}
	var found []device.DriverLibrary
	for i := range count {
		entry := data[headerBytes+i*entryBytes:]
		name, ok := text(data, binary.NativeEndian.Uint32(entry[4:]))
		if !ok {
			return nil, errCache
		}
		cuda := name == device.LibraryCUDA || name == device.LibraryNVML
		other := slices.ContainsFunc(others, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		if !cuda && !other {
			continue
		}
		other = other || int32(binary.NativeEndian.Uint32(entry)) != native[runtime.GOARCH]
		path, ok := text(data, binary.NativeEndian.Uint32(entry[8:]))
		if !ok || !filepath.IsAbs(path) {
			return nil, errCache
		}
		found = append(found, device.DriverLibrary{SONAME: name, File: path, Other: other})
	}
	return found, nil
}

// text is a text of the table, ended by NUL.
func text(data []byte, at uint32) (string, bool) {
	if int64(at) >= int64(len(data)) {
		return "", false
	}
	found, _, ended := bytes.Cut(data[at:], []byte{0})
	return string(found), ended
}
