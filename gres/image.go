// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/driver"
)

// rootImage is a root file system with this program in it, into which the node's libraries are to be mounted.
type rootImage struct {
	root    string
	probe   string   // the program, as it is named inside
	folders []string // what is to be mounted, by the same name
}

// libraryFolders are those of the node in which programs' libraries lie.
var libraryFolders = []string{"/usr", "/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"}

// makeImage leaves the root file system for the caller to remove.
func makeImage(cfg config.Config) (image rootImage, err error) {
	if image.root, err = os.MkdirTemp("", "vgpu-gres-"); err != nil {
		return image, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(image.root)
		}
	}()
	image.probe = "/vgpu-gres"
	for _, folder := range []string{"/dev", "/proc", "/sys", "/tmp", "/run", "/etc", "/home", "/root", "/mnt"} {
		if err := image.makeFolder(folder); err != nil {
			return image, err
		}
	}
	for _, folder := range libraryFolders {
		if err := image.takeFolder(folder); err != nil {
			return image, err
		}
	}
	libraries, _ := driver.Find(driver.Cache)
	for _, library := range libraries { // a driver that is elsewhere
		if err := image.takeAlso(filepath.Dir(library.File)); err != nil {
			return image, err
		}
	}
	for _, file := range []string{"/etc/hosts", "/etc/resolv.conf", "/etc/machine-id", "/etc/localtime"} { // to be mounted on
		if err := os.WriteFile(filepath.Join(image.root, file), nil, 0o644); err != nil {
			return image, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return image, err
	}
	return image, errors.Join(image.copyFile(self, image.probe, 0o755), image.copyFile("/etc/ld.so.cache", "/etc/ld.so.cache", 0o644),
		image.copyFile("/etc/passwd", "/etc/passwd", 0o644), image.copyFile("/etc/group", "/etc/group", 0o644))
}

func (i *rootImage) makeFolder(folder string) error {
	return os.MkdirAll(filepath.Join(i.root, folder), 0o755)
}

// takeFolder has a folder of the node inside: as a mount, or as the link that it is.
func (i *rootImage) takeFolder(folder string) error {
	info, err := os.Lstat(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(folder)
		if err != nil {
			return err
		}
		return os.Symlink(target, filepath.Join(i.root, folder))
	}
	i.folders = append(i.folders, folder)
	return i.makeFolder(folder)
}

// takeAlso mounts a folder that none of the others has.
func (i *rootImage) takeAlso(folder string) error {
	within := func(other string) bool { return folder == other || strings.HasPrefix(folder, other+"/") }
	if slices.ContainsFunc(i.folders, within) || slices.ContainsFunc(libraryFolders, within) {
		return nil
	}
	i.folders = append(i.folders, folder)
	return i.makeFolder(folder)
}

func (i *rootImage) copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(filepath.Join(i.root, to), os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
