// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// Option is an option's name without dashes and its text as typed.
type Option struct{ Name, Text string }

// CheckOption says whether the text can be the option's value, in words for the user.
func CheckOption(name, text string) error {
	var ignored request.Request
	return request.ParseOption(name, text, &ignored)
}

// EncodeOptions returns the canonical form of a job's options.
func EncodeOptions(options []Option) (string, error) {
	r, err := parse(options)
	return r.Encode(), err
}

// SpellOptions returns the options as they were typed, in the manner of the canonical form. It is for
// messages only: what would not fit or could be misread is left out.
func SpellOptions(options []Option) string {
	var parts []string
	bytes := 0
	for _, option := range options {
		part := strings.TrimPrefix(option.Name, "vgpu-") + "=" + option.Text
		if bytes += len(part) + 1; bytes <= request.MaxWireBytes && !strings.Contains(option.Text, ";") {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ";")
}

// EncodeDefaults returns the canonical form of the defaults that the environment gives to the
// options. The variable of an option that was typed is not looked at: it has no effect.
// An error names every variable that cannot be taken.
func EncodeDefaults(fallbacks, typed []Option) (string, error) {
	values := make(map[string]string, len(fallbacks)) // by option
	for _, fallback := range fallbacks {
		values[fallback.Name] = fallback.Text
	}
	for _, option := range typed {
		delete(values, option.Name)
	}
	var r request.Request
	err := request.ParseEnv(func(variable string) string {
		for _, row := range request.Options {
			if row.Env == variable {
				return values[row.Name]
			}
		}
		return ""
	}, &r)
	return r.Encode(), err
}

func parse(options []Option) (request.Request, error) {
	var r request.Request
	for _, option := range options {
		if err := request.ParseOption(option.Name, option.Text, &r); err != nil {
			return request.Request{}, err
		}
	}
	return r, nil
}
