// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// header is what a C header says about entry points: names only.
type header struct {
	path    string
	version string   // as the header writes it: "13000" (CUDA_VERSION), "13.3.29" (NVML)
	names   []string // symbols, sorted, with their versions and per-thread-stream variants
}

var (
	blockComment  = regexp.MustCompile(`(?s)/\*.*?\*/`)
	lineComment   = regexp.MustCompile(`//[^\n]*`)
	continuation  = regexp.MustCompile(`\\[ \t]*\n`)
	declaration   = regexp.MustCompile(`\b(?:CUDAAPI|DECLDIR)\b[\w\s*]*?\b((?:cu|nvml)[A-Z]\w*)\s*\(`)
	inline        = regexp.MustCompile(`\bstatic\s+(?:__)?inline(?:__)?\b[\w\s*]*?\b(cu[A-Z]\w*)\s*\(`)
	renaming      = regexp.MustCompile(`^#\s*define\s+((?:cu|nvml)[A-Z]\w*)\s+(.+?)\s*$`)
	plainTarget   = regexp.MustCompile(`^(?:cu|nvml)[A-Z]\w*$`)
	perThread     = regexp.MustCompile(`^__CUDA_API_(PTDS|PTSZ)\s*\(\s*(cu[A-Z]\w*)\s*\)$`)
	cudaVersion   = regexp.MustCompile(`(?m)^#\s*define\s+CUDA_VERSION\s+(\d+)`)
	nvmlVersion   = regexp.MustCompile(`NVML VERSION:\s*([0-9.]+)`)
	perThreadTail = map[string]string{"PTDS": "_ptds", "PTSZ": "_ptsz"}
)

// readHeader reads a header, and others that belong to it.
func readHeader(path string, more ...string) (header, error) {
	var all strings.Builder
	for _, file := range append([]string{path}, more...) {
		text, err := os.ReadFile(file)
		if err != nil {
			return header{}, fmt.Errorf("reading header: %w", err)
		}
		all.Write(text)
		all.WriteByte('\n')
	}
	h := parseHeader(all.String())
	h.path = path
	if len(h.names) == 0 {
		return header{}, fmt.Errorf("reading header %s: no declared entry point found in it", path)
	}
	return h, nil
}

// parseHeader does not preprocess: what any choice of macros declares is an entry point. A
// `#define name target` around a declared function makes both of them symbols, since libraries go
// on to export what older headers declared.
func parseHeader(text string) header {
	var h header
	if m := cudaVersion.FindStringSubmatch(text); m != nil {
		h.version = m[1]
	} else if m := nvmlVersion.FindStringSubmatch(text); m != nil {
		h.version = m[1]
	}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = blockComment.ReplaceAllString(text, " ")
	text = lineComment.ReplaceAllString(text, "")
	text = continuation.ReplaceAllString(text, " ")

	var code strings.Builder
	var directives []string
	for line := range strings.Lines(text) {
		if directive := strings.TrimSpace(line); strings.HasPrefix(directive, "#") {
			directives = append(directives, directive)
		} else {
			code.WriteString(line)
		}
	}
	names := map[string]bool{}
	for _, m := range declaration.FindAllStringSubmatch(code.String(), -1) {
		names[m[1]] = true
	}
	addRenamed(names, directives)
	// A function that the header itself defines is no symbol of the library.
	for _, m := range inline.FindAllStringSubmatch(code.String(), -1) {
		delete(names, m[1])
	}
	for name := range names {
		h.names = append(h.names, name)
	}
	slices.Sort(h.names)
	return h
}

// addRenamed follows renamings until nothing new comes: a target can itself be renamed.
func addRenamed(names map[string]bool, directives []string) {
	for more := true; more; {
		more = false
		add := func(name string) {
			if !names[name] {
				names[name], more = true, true
			}
		}
		for _, directive := range directives {
			m := renaming.FindStringSubmatch(directive)
			if m == nil {
				continue
			}
			name, target, tail := m[1], m[2], ""
			if p := perThread.FindStringSubmatch(target); p != nil {
				target, tail = p[2], perThreadTail[p[1]]
			} else if !plainTarget.MatchString(target) {
				continue
			}
			if !names[name] && !names[target] {
				continue // a type or a constant
			}
			add(name)
			add(target)
			if tail != "" {
				add(target + tail)
			}
		}
	}
}
