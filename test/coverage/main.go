// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Command coverage says what of the CUDA driver and NVML the interposer covers, and writes it down
// in docs/cuda-coverage.md.
//
//	coverage [-cuda-h FILE] [-nvml-h FILE] [-take]
//
// It is run at the root of the repository. The document comes from the committed tables alone: the
// names in guard/names/, the classes in classes-*.txt, the rows in interposer/api. Headers that are found
// are held against them. An entry point that matches no pattern, or that needs a row or a reason
// and has neither, fails the run; that is how a new CUDA version gets looked at. -take adds the
// names that the headers declare to guard/names/.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	var o options
	flag.StringVar(&o.cudaHeader, "cuda-h", "", "read this cuda.h instead of an installed one")
	flag.StringVar(&o.nvmlHeader, "nvml-h", "", "read this nvml.h instead of installed ones and go-nvml's")
	flag.BoolVar(&o.take, "take", false, "add the names that the headers declare to the committed ones")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: coverage [-cuda-h FILE] [-nvml-h FILE] [-take]")
		os.Exit(2)
	}
	if err := run(".", o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type options struct {
	cudaHeader, nvmlHeader string
	take                   bool
}

func run(root string, o options) error {
	headers, err := findHeaders(root, o)
	if err != nil {
		return err
	}
	if o.take {
		if err := take(root, headers); err != nil {
			return err
		}
	}
	t, err := readTables(root)
	if err != nil {
		return err
	}
	entries, err := t.check()
	wrong := []error{err}
	for _, h := range headers {
		wrong = append(wrong, t.compare(h))
	}
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, document), []byte(render(entries)), 0o644); err != nil {
		return fmt.Errorf("writing the document: %w", err)
	}
	for _, api := range apis {
		n := count(ofAPI(entries, api.prefix)).sum()
		fmt.Printf("%-11s  %3d with a row, %3d need none, %3d not yet\n", api.title, n[withRow], n[needsNone], n[planned])
	}
	fmt.Println("written to", document)
	return nil
}

// compare looks at what a header declares and the committed names lack.
func (t tables) compare(h header) error {
	var news []string
	var wrong []error
	for _, name := range h.names {
		if t.names[name] {
			continue
		}
		news = append(news, name)
		if _, _, err := t.classify(name); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", h.path, err))
		}
	}
	fmt.Printf("%s: version %s, %d names\n", h.path, h.version, len(h.names))
	if len(news) > 0 {
		fmt.Printf("  not in %s (coverage -take adds them): %s\n", namesDir, strings.Join(news, " "))
	}
	return errors.Join(wrong...)
}
