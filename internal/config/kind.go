// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// Key is one key of config.yaml.
type Key struct {
	Name      string   // "run_dir", "log.level"
	Section   string   // the heading under which it is shown
	Meaning   []string // paragraphs in Markdown: the first is in config.yaml.example too. None: what stands at the key before is of both
	More      []string // … behind the words of a choice
	NotBeside []string // one of the two keys that cannot both have another value than their default names the other
	Example   string   // another value, for config.yaml.example

	kind
}

// Word is a value of a choice, and what it means: paragraphs, of which the first is in config.yaml.example too.
type Word struct {
	Is    string
	Means []string
}

// kind is what a key can be.
type kind struct {
	Type  string // in few words, for the manual page
	Words []Word // of a choice
	wants string // in words, for an error

	at    func(*Config) any // the address of its field
	get   func(*Config) any
	reset func(*Config) // gives it its default
	valid func(*Config) bool
}

const (
	acceptedDir     = "an absolute path"
	acceptedNames   = `a list of names as in Slurm: [rt, inference]; ["*"] is all of them`
	acceptedProgram = "an absolute path of a program"
	// maxRunDir leaves room for a node's name, /pages and a job's number in the limits page (VGPU_PAGES_DIR_BYTES).
	maxRunDir = 90
	// MaxSlicesPerGPU is the most that slices_per_gpu may say.
	MaxSlicesPerGPU = 1000
)

// Default is the key's default, as it is written in the file.
func (k Key) Default() string {
	usual := Default()
	return k.text(&usual)
}

func (k Key) isUsual(c *Config) bool { return k.text(c) == k.Default() }

// text is the key's value as it is written in the file. Items of lists have no blanks.
func (k Key) text(c *Config) string {
	switch v := k.get(c).(type) {
	case time.Duration:
		return inWords(v)
	case float64:
		return typed(v)
	case map[string]map[string]any:
		return inBraces(v)
	case []string, []int, []device.UUID:
		return strings.ReplaceAll(fmt.Sprint(v), " ", ", ")
	default:
		return fmt.Sprint(v)
	}
}

// of is a key of any kind.
func of[T any](field func(*Config) *T, usual T, kindOf, wants string, valid func(T) bool) kind {
	return kind{
		Type: kindOf, wants: wants,
		at:    func(c *Config) any { return field(c) },
		get:   func(c *Config) any { return *field(c) },
		reset: func(c *Config) { *field(c) = usual },
		valid: func(c *Config) bool { return valid(*field(c)) },
	}
}

func path(field func(*Config) *string, usual string) kind {
	return of(field, usual, "path", acceptedDir, isDir)
}

func program(field func(*Config) *string, name string) kind {
	return of(field, "/usr/bin/"+name, "path", acceptedProgram, isDir)
}

// choice is one of some words.
func choice[T ~string](field func(*Config) *T, usual T, words ...Word) kind {
	var all []string
	for _, word := range words {
		all = append(all, word.Is)
	}
	last := len(all) - 1
	k := of(field, usual, strings.Join(all[:last], ", ")+" or "+all[last], strings.Join(all, ", "), func(is T) bool { return slices.Contains(all, string(is)) })
	k.Words = words
	return k
}

// wordsOf are the values of an option for jobs.
func wordsOf(name string) (words []Word) {
	for _, option := range request.Options {
		if option.Name == name {
			for _, value := range option.Values {
				words = append(words, Word{Is: value})
			}
		}
	}
	return words
}

func whole(field func(*Config) *int, usual, low, high int) kind {
	return of(field, usual, fmt.Sprintf("%d to %d", low, high), fmt.Sprintf("a whole number from %d to %d", low, high),
		func(n int) bool { return within(n, low, high) })
}

func duration(field func(*Config) *time.Duration, usual, low, high time.Duration, examples string) kind {
	bounds := inWords(low) + " to " + inWords(high)
	return of(field, usual, "time, "+bounds, "a time with its unit from "+bounds+": "+examples, func(d time.Duration) bool { return within(d, low, high) })
}

func truth(field func(*Config) *bool, usual bool) kind {
	return of(field, usual, "true or false", "true, false", func(bool) bool { return true })
}

// list has a default in memory of its own.
func list[T any](field func(*Config) *[]T, usual []T, kindOf, wants string, valid func([]T) bool) kind {
	k := of(field, usual, kindOf, wants, valid)
	k.reset = func(c *Config) { *field(c) = slices.Clone(usual) }
	return k
}

// withoutSlice: what is closed on the node cannot be left to jobs that nobody opens it for. Keys are read in the order
// of the alphabet, so that device_files is known.
func withoutSlice() kind {
	k := of(func(c *Config) *string { return &c.WithoutSlice }, "", "leave or mask",
		`"" (mask with whole_gpus, slurm_gpus, shards or device_files: closed, else leave), leave (not with device_files: closed), mask`, nil)
	k.valid = func(c *Config) bool {
		return oneOf(c.WithoutSlice, "", WithoutMask) || c.WithoutSlice == WithoutLeave && c.DeviceFiles != FilesClosed
	}
	return k
}

// inWords is a time as it is written in the file.
func inWords(d time.Duration) string {
	return strings.Replace(strings.Replace(d.String(), "m0s", "m", 1), "h0m", "h", 1)
}

func oneOf[T comparable](value T, accepted ...T) bool { return slices.Contains(accepted, value) }

func within[T int | time.Duration](value, low, high T) bool { return value >= low && value <= high }

func isDir(path string) bool {
	return filepath.IsAbs(path) && !strings.ContainsAny(path, "\x00\n")
}

// isPreloadable: ld.so splits /etc/ld.so.preload and LD_PRELOAD at blanks and colons and expands $ORIGIN.
func isPreloadable(path string) bool {
	return filepath.IsAbs(path) && !strings.ContainsAny(path, " \t\r\n:$\x00")
}

func areUUIDs(names []device.UUID) bool {
	return !slices.ContainsFunc(names, func(name device.UUID) bool {
		return !strings.HasPrefix(string(name), "GPU-") && !strings.HasPrefix(string(name), "MIG-")
	})
}

func areWords(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return name == "" || strings.ContainsAny(name, " \t\n\x00") })
}

// areNames: what stands beside "*", and what Slurm takes for no name or for several, is a mistake.
func areNames(names []string) bool {
	odd := slices.ContainsFunc(names, func(name string) bool { return name != AnyName && strings.ContainsAny(name, "*,=()\"") })
	return areWords(names) && !odd && (len(names) < 2 || !slices.Contains(names, AnyName))
}
