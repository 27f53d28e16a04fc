// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

// #include "../plan.h"
import "C"

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Names for C's types, because a test file cannot import "C".
type (
	char        = C.char
	planData    = C.struct_vgpu_plan
	requestData = C.struct_vgpu_request
)

const wireBytes = C.VGPU_WIRE_BYTES

// get is the text in a C array; the end of the array ends it if no NUL does.
func get(field []char) string {
	var text strings.Builder
	for _, c := range field {
		if c == 0 {
			break
		}
		text.WriteByte(byte(c))
	}
	return text.String()
}

// put writes a text that must fit whole, because half a path or variable is a wrong one.
func put(field []char, text string) error {
	if len(text) >= len(field) {
		return fmt.Errorf("prepare the step: %.40q… has %d bytes, at most %d fit", text, len(text), len(field)-1)
	}
	if strings.IndexByte(text, 0) >= 0 {
		return fmt.Errorf("prepare the step: %.40q has a NUL byte", text)
	}
	for i := range len(text) {
		field[i] = char(text[i])
	}
	field[len(text)] = 0
	return nil
}

// putReason writes a reason as one line that fits, whatever it is made of.
func putReason(field []char, reason error) {
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, strings.ReplaceAll(reason.Error(), "\n", "; ")) // of joined errors
	if len(text) >= len(field) {
		text = strings.ToValidUTF8(text[:len(field)-1-len("…")], "") + "…"
	}
	if err := put(field, text); err != nil {
		field[0] = '?'
		field[1] = 0
	}
}
