// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"

	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// maxFileBytes bounds config.yaml.
const maxFileBytes = 1 << 20

// Problem is one thing wrong with a configuration file.
type Problem struct {
	File     string
	Key      string // "" when the file as a whole is meant
	Reason   string
	Accepted string // what would be right; "" when the reason says it
	Err      error  // what stands behind it, if anything
}

// Error names file, key and accepted values.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Key != "" {
		b.WriteString(": " + p.Key)
	}
	b.WriteString(": " + p.Reason)
	if p.Accepted != "" {
		b.WriteString("; accepted: " + p.Accepted)
	}
	return b.String()
}

func (p *Problem) Unwrap() error { return p.Err }

// Load reads a configuration file strictly: any problem is an error, and all of them are named.
func Load(path string) (Config, error) {
	cfg, problems := LoadLenient(path)
	if len(problems) == 0 {
		return cfg, nil
	}
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = p
	}
	return Config{}, errors.Join(errs...)
}

// LoadLenient reads what can be read of a configuration file: every key that is wrong keeps its default and is returned as a problem.
// LoadHeld is for who acts by it.
func LoadLenient(path string) (Config, []*Problem) {
	cfg := Default()
	data, err := trusted.ReadFile(path, maxFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return cfg, nil
	}
	if err != nil {
		return cfg, []*Problem{{File: path, Reason: err.Error(), Err: err,
			Accepted: "a regular file, owned by root, writable by nobody else"}}
	}
	return parse(path, data)
}

func parse(path string, data []byte) (Config, []*Problem) {
	cfg, v := Default(), viper.New()
	// The content was read through the trusted descriptor; the name only tells viper the format.
	v.SetConfigFile(path)
	v.SetConfigType("yaml")
	if err := v.ReadConfig(bytes.NewReader(data)); err != nil {
		return cfg, []*Problem{{File: path, Reason: err.Error(), Err: err, Accepted: "YAML of `key: value` lines"}}
	}
	return apply(cfg, path, v)
}

// apply decodes key by key, so that one wrong key costs no other one its value.
func apply(cfg Config, path string, v *viper.Viper) (Config, []*Problem) {
	var problems []*Problem
	given := v.AllKeys()
	if all, right := atOnce(cfg, v, given); right {
		return all, nil
	}
	sort.Strings(given)
	for _, name := range given {
		key, known := keyByName(name)
		if v.Get(name) == nil && (known || isSection(name)) {
			continue // `key:` with nothing behind it
		}
		if !known {
			problems = append(problems, &Problem{File: path, Key: name, Reason: "there is no such key" + suggestion(name),
				Accepted: accepts(name)})
			continue
		}
		one := viper.New()
		one.Set(name, v.Get(name))
		next := cfg
		if err := one.UnmarshalExact(&next, strictTypes); err != nil {
			problems = append(problems, &Problem{File: path, Key: name, Err: err,
				Reason: fmt.Sprintf("%v is not a value of this key", v.Get(name)), Accepted: key.accepted})
			continue
		}
		if !key.valid(&next) {
			problems = append(problems, &Problem{File: path, Key: name,
				Reason: fmt.Sprintf("%v is not a value of this key", v.Get(name)), Accepted: key.accepted})
			continue
		}
		cfg = next
	}
	return cfg, problems
}

// atOnce decodes all keys together, as each program of a job does and nearly always can. right is false where there is something to tell.
func atOnce(cfg Config, v *viper.Viper, given []string) (_ Config, right bool) {
	if err := v.UnmarshalExact(&cfg, strictTypes); err != nil {
		return cfg, false
	}
	for _, name := range given {
		if key, known := keyByName(name); !known || v.Get(name) == nil || !key.valid(&cfg) {
			return cfg, false
		}
	}
	return cfg, true
}

// strictTypes turns off viper's guesses: true is not the number 1, 60 is not a minute, 10.5 slices are none.
func strictTypes(dc *mapstructure.DecoderConfig) {
	dc.WeaklyTypedInput = false
	dc.ZeroFields = true // a list that is given replaces its default, in memory of its own
	dc.DecodeHook = mapstructure.ComposeDecodeHookFunc(refuseGuesses, mapstructure.StringToTimeDurationHookFunc())
}

func refuseGuesses(from, to reflect.Type, value any) (any, error) {
	isNumber := from.Kind() >= reflect.Int && from.Kind() <= reflect.Float64
	switch {
	case to == reflect.TypeFor[time.Duration]() && isNumber:
		return nil, fmt.Errorf("%v has no unit", value)
	case to.Kind() == reflect.Int && (from.Kind() == reflect.Float32 || from.Kind() == reflect.Float64):
		return nil, fmt.Errorf("%v is not a whole number", value)
	}
	return value, nil
}

// Effective prints a configuration as the file that would give it.
func (c Config) Effective() string {
	v := viper.New()
	v.SetConfigType("yaml")
	for _, key := range keys {
		v.Set(key.name, key.value(&c))
	}
	var out bytes.Buffer
	if err := v.WriteConfigTo(&out); err != nil {
		return "# " + err.Error() + "\n"
	}
	return out.String()
}
