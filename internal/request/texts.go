// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"errors"
	"strings"
)

// Texts are options as they were typed, in the order of Options; "" is not given.
type Texts []string

// First is the first option that was given, as it was typed; "" where none was.
func (t Texts) First() string {
	for i, text := range t {
		if text != "" {
			return "--" + Options[i].Name + "=" + text
		}
	}
	return ""
}

// Request reads the options. The error is one line for the user, as of ParseOption.
func (t Texts) Request() (Request, error) {
	var r Request
	for i, text := range t {
		if text == "" {
			continue
		}
		if err := Options[i].read("--"+Options[i].Name, text, &r); err != nil {
			return Request{}, err
		}
	}
	return r, nil
}

// Defaults reads the options' variables but for those of options that were typed, which have no effect. Every bad value is an error that
// names its variable; the good ones are taken all the same, because a default must not stop a job.
func (t Texts) Defaults(typed Texts) (Request, error) {
	var r Request
	var bad []error
	for i, text := range t {
		if text != "" && typed[i] == "" {
			bad = append(bad, Options[i].read(Options[i].Env(), text, &r))
		}
	}
	return r, errors.Join(bad...)
}

// Spelled is the options as they were typed, in the manner of the canonical form. It is for messages only: what would not fit or
// could be misread is left out.
func (t Texts) Spelled() string {
	var parts []string
	bytes := 0
	for i, text := range t {
		if text == "" {
			continue
		}
		part := Options[i].Key() + "=" + text
		if bytes += len(part) + 1; bytes <= MaxWireBytes && !strings.Contains(text, ";") {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ";")
}
