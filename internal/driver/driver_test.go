// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// cacheOf lets the real ldconfig write a cache of these libraries, each built with its SONAME.
func cacheOf(t *testing.T, sonames ...string) (cache, folder string) {
	t.Helper()
	ldconfig, err := exec.LookPath("/sbin/ldconfig")
	if err != nil {
		t.Skip("no ldconfig here")
	}
	root := t.TempDir()
	folder = filepath.Join(root, "driver")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(root, "ld.so.conf")
	if err := os.WriteFile(conf, []byte(folder+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, soname := range sonames {
		out, err := exec.Command("cc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-Wl,-soname,"+soname, "-o", filepath.Join(folder, soname+".9")).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	cache = filepath.Join(root, "cache")
	if out, err := exec.Command(ldconfig, "-C", cache, "-f", conf).CombinedOutput(); err != nil {
		t.Fatalf("ldconfig: %v: %s", err, out)
	}
	return cache, folder
}

func TestTheDriversFilesAreFoundBehindTheirLinks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the libraries are to be root's")
	}
	cache, folder := cacheOf(t, device.LibraryCUDA, device.LibraryNVML, "libother.so.1")
	got, err := Find(cache)
	if err != nil {
		t.Fatal(err)
	}
	var ours []device.DriverLibrary
	for _, library := range got {
		if filepath.Dir(library.File) == folder { // this machine may have a driver
			ours = append(ours, library)
		}
	}
	want := []device.DriverLibrary{{SONAME: device.LibraryNVML, File: filepath.Join(folder, device.LibraryNVML+".9")}, {SONAME: device.LibraryCUDA, File: filepath.Join(folder, device.LibraryCUDA+".9")}}
	if diff := cmp.Diff(want, ours); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestOtherWaysToTheGPUAreFound(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the libraries are to be root's")
	}
	names := []string{"libEGL_nvidia.so.0", "libGLX_nvidia.so.0", "libnvidia-eglcore.so.580.1", "libnvidia-glcore.so.580.1", "libnvidia-opencl.so.1", "libnvidia-vksc-core.so.1"}
	cache, folder := cacheOf(t, append(names, "libEGL_mesa.so.0", "libnvcuvid.so.1", "libnvidia-ptxjitcompiler.so.1", "libOpenCL.so.1")...)
	found, err := Find(cache)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, library := range found {
		if filepath.Dir(library.File) == folder && library.Other {
			got = append(got, library.SONAME)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(names, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A 32-bit program's driver is no way that a guard, which has 64 bits, could stand over.
func TestThe32BitDriverIsAnotherWay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the libraries are to be root's")
	}
	cache, folder := cacheOf(t, device.LibraryCUDA)
	data, err := os.ReadFile(cache)
	if err != nil {
		t.Fatal(err)
	}
	entries := bytes.Index(data, []byte(magic)) + headerBytes
	for at := entries; at < entries+entryBytes*int(binary.NativeEndian.Uint32(data[entries-headerBytes+len(magic):])); at += entryBytes {
		binary.NativeEndian.PutUint32(data[at:], 0x0003) // i386: FLAG_ELF_LIBC6 alone
	}
	if err := os.WriteFile(cache, data, 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := Find(cache)
	want := device.DriverLibrary{SONAME: device.LibraryCUDA, File: filepath.Join(folder, device.LibraryCUDA+".9"), Other: true}
	if err != nil || !slices.Contains(found, want) {
		t.Errorf("got %v, %v, want %v in it", found, err, want)
	}
}

func TestALibraryThatOthersCanWriteIsAnError(t *testing.T) {
	cache, folder := cacheOf(t, device.LibraryCUDA)
	if err := os.Chmod(filepath.Join(folder, device.LibraryCUDA+".9"), 0o777); err != nil {
		t.Fatal(err)
	}
	if got, err := Find(cache); err == nil {
		t.Errorf("found %v", got)
	}
}

func TestANodeWithoutACacheHasNoDriver(t *testing.T) {
	if got, err := Find(filepath.Join(t.TempDir(), "cache")); err != nil || got != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

// Whatever lies there: no panic, and no path that is none.
func FuzzParse(f *testing.F) {
	if cache, err := os.ReadFile(Cache); err == nil {
		f.Add(cache[:min(len(cache), 4096)])
	}
	f.Add([]byte(oldMagic + "\x00\x00\x00\x00\x00"))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		found, err := parse(data)
		for _, library := range found {
			if err != nil || !filepath.IsAbs(library.File) {
				t.Errorf("%v, %v", found, err)
			}
		}
	})
}
