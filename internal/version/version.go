// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package version has the release of programs and libraries. All parts on a node are to be of one.
package version

import (
	"debug/elf"
	"fmt"
	"strings"
)

// Unknown is what a program says that was built without make.
const Unknown = "unknown"

// Number is this program's: make sets it to what the file VERSION has.
var Number = Unknown

// Remedy is what to do about parts of different releases.
const Remedy = "install programs, plugin and library of one version; steps that run keep theirs until they end"

// The interposer and the plugin have it in a section of its own (interposer/base/version.c).
const (
	section       = ".slurm_vgpu.version"
	layoutSection = ".slurm_vgpu.layout"
	name          = "slurm-vgpu "
	most          = 128
)

// Of is the number in a library, without loading it; Unknown where it has none.
func Of(path string) (string, error) {
	file, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("read version of %s: %w", path, err)
	}
	defer file.Close()
	found := file.Section(section)
	if found == nil || found.Type == elf.SHT_NOBITS || found.Size > most {
		return Unknown, nil
	}
	data, err := found.Data()
	if err != nil {
		return "", fmt.Errorf("read version of %s: %w", path, err)
	}
	text, _, _ := strings.Cut(string(data), "\x00")
	number, ours := strings.CutPrefix(text, name)
	if !ours || number == "" {
		return Unknown, nil
	}
	return number, nil
}

// LedgerBytes is how long a ledger the interposer at this path needs (interposer/api/layout.c); 0 where it does not say.
func LedgerBytes(path string) (uint32, error) {
	file, err := elf.Open(path)
	if err != nil {
		return 0, fmt.Errorf("read layout of %s: %w", path, err)
	}
	defer file.Close()
	found := file.Section(layoutSection)
	if found == nil || found.Type == elf.SHT_NOBITS || found.Size != 4 {
		return 0, nil
	}
	data, err := found.Data()
	if err != nil {
		return 0, fmt.Errorf("read layout of %s: %w", path, err)
	}
	return file.ByteOrder.Uint32(data), nil
}

// Differs says whether something of that number is of another release than this program. Of what is unknown
// nothing can be said.
func Differs(number string) bool {
	return Number != Unknown && number != Number
}
