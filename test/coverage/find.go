// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// installed is where packages and toolkits put headers.
var installed = []string{"/usr/include", "/usr/local/cuda/include"}

// interop headers stand beside cuda.h and declare entry points of the same library.
var interop = []string{"cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cudaProfiler.h"}

// findHeaders reads the headers that are named or found, and says which it could not find.
func findHeaders(root string, o options) ([]header, error) {
	cuda, nvml := []string{o.cudaHeader}, []string{o.nvmlHeader}
	if o.cudaHeader == "" {
		cuda = existing("cuda.h", installed...)
	}
	if o.nvmlHeader == "" {
		nvml = existing("nvml.h", append(installed, goNVML(root))...)
	}
	if len(cuda) == 0 {
		fmt.Printf("no cuda.h in %s: the committed names are all there is to look at\n", strings.Join(installed, ", "))
	}
	if len(nvml) == 0 {
		fmt.Printf("no nvml.h in %s or go-nvml: the committed names are all there is to look at\n", strings.Join(installed, ", "))
	}
	var headers []header
	for _, path := range append(cuda, nvml...) {
		var more []string
		if filepath.Base(path) == "cuda.h" {
			for _, name := range interop {
				more = append(more, existing(name, filepath.Dir(path))...)
			}
		}
		h, err := readHeader(path, more...)
		if err != nil {
			return nil, err
		}
		headers = append(headers, h)
	}
	return headers, nil
}

func existing(name string, dirs ...string) []string {
	var found []string
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			found = append(found, path)
		}
	}
	return found
}

// goNVML is the folder of the nvml.h that the build compiles, or "" where the module is not there.
func goNVML(root string) string {
	list := exec.Command(cmp.Or(os.Getenv("GO"), "go"), "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml")
	list.Dir = root
	out, err := list.Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		return ""
	}
	return filepath.Join(dir, "pkg", "nvml")
}

// take writes what a header declares beside what is known of other versions: drivers go on to
// export names that headers drop.
func take(root string, headers []header) error {
	for _, h := range headers {
		api, version, err := h.release()
		if err != nil {
			return err
		}
		text := fmt.Sprintf(`# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Symbols that %s.h of version %s declares. Names only.
%s
`, api, version, strings.Join(h.names, "\n"))
		file := filepath.Join(root, namesDir, api+"-"+version+".txt")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return fmt.Errorf("writing names: %w", err)
		}
	}
	return nil
}

// release is the API and its version as the names of files in names/ have them.
func (h header) release() (api, version string, err error) {
	if major, minor, ok := strings.Cut(h.version, "."); ok {
		minor, _, _ = strings.Cut(minor, ".")
		return "nvml", major + "." + minor, nil
	}
	n, err := strconv.Atoi(h.version)
	if err != nil || n < 1000 {
		return "", "", fmt.Errorf("taking names of %s: it does not say its version", h.path)
	}
	return "cuda", fmt.Sprintf("%d.%d", n/1000, n%1000/10), nil
}
