// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Command schema writes the texts that stand in several files and languages about one option for jobs or one key of
// config.yaml: each is made of one row (request.Options, config.Keys). `make generate` runs it; the files are committed, so that
// a build needs nothing new.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

//go:generate go run . ..

// part is what is written into a file: all of it, or what stands between the two lines that name the block.
type part struct{ file, block, text string }

// parts are all that is made of the tables.
func parts(options []request.Option, keys []config.Key) []part {
	return append(ofOptions(options), ofKeys(keys)...)
}

// put returns a file's text with a part in its place.
func (p part) put(old string) (string, error) {
	if p.block == "" {
		return p.text, nil
	}
	begin := strings.Index(old, "begin generated "+p.block+":")
	end := strings.Index(old, "end generated "+p.block)
	if begin < 0 || end < begin {
		return "", fmt.Errorf("%s: no lines with `begin generated %s:` and `end generated %[2]s`", p.file, p.block)
	}
	first := begin + strings.IndexByte(old[begin:], '\n') + 1
	last := strings.LastIndexByte(old[:end], '\n') + 1
	return old[:first] + p.text + old[last:], nil
}

// made returns the files below root as they should be, by name.
func made(root string, all []part) (map[string]string, error) {
	texts := map[string]string{}
	for _, p := range all {
		old, known := texts[p.file]
		if !known && p.block != "" {
			data, err := os.ReadFile(filepath.Join(root, p.file))
			if err != nil {
				return nil, err
			}
			old = string(data)
		}
		text, err := p.put(old)
		if err != nil {
			return nil, err
		}
		texts[p.file] = text
	}
	return texts, nil
}

func run(root string) error {
	texts, err := made(root, parts(request.Options, config.Keys()))
	if err != nil {
		return err
	}
	for name, text := range texts {
		path := filepath.Join(root, name)
		if old, err := os.ReadFile(path); err == nil && string(old) == text {
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // sources are for everybody
			return err
		}
		fmt.Println(name)
	}
	return nil
}

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	if err := run(root); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
