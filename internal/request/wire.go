// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"strings"
)

// MaxWireBytes bounds the canonical form.
const MaxWireBytes = 2048

// Encode returns the canonical form: key=value joined by ";" in the order of Options, without what
// was not asked for. The zero request is "".
func (r Request) Encode() string {
	var parts []string
	for _, option := range Options {
		if value := option.print(r); value != "" {
			parts = append(parts, option.Key()+"="+value)
		}
	}
	return strings.Join(parts, ";")
}

// AsTyped is the options by which one would ask for the same.
func (r Request) AsTyped() (options []string) {
	for _, option := range Options {
		value := option.print(r)
		if option.typed != nil {
			value = option.typed(r)
		}
		if value != "" {
			options = append(options, "--"+option.Name+"="+value)
		}
	}
	return options
}

// Decode reads the canonical form and nothing else: another spelling of the same request is an
// error, so that a text that a user made by hand has one meaning to all its readers.
func Decode(text string) (Request, error) {
	if len(text) > MaxWireBytes {
		return Request{}, fmt.Errorf("read vgpu request of %d bytes: at most %d are allowed", len(text), MaxWireBytes)
	}
	if text == "" {
		return Request{}, nil
	}
	var r Request
	for part := range strings.SplitSeq(text, ";") {
		key, value, _ := strings.Cut(part, "=")
		option, err := named("--vgpu-"+key, "vgpu-"+key)
		if err == nil {
			err = option.take("--"+option.Name, value, value, &r)
		}
		if err != nil {
			return Request{}, fmt.Errorf("read vgpu request: %w", err)
		}
	}
	if canonical := r.Encode(); canonical != text {
		return Request{}, fmt.Errorf("read vgpu request %s: it is not in canonical form", shorten(text))
	}
	return r, nil
}
