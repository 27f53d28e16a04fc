// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"

	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
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
			Accepted: "a regular file, owned by root, writable by root alone"}}
	}
	return parse(path, data)
}

func parse(path string, data []byte) (Config, []*Problem) {
	cfg, v := Default(), viper.New()
	// The content was read through the trusted descriptor; the name only tells viper the format.
	v.SetConfigFile(path)
	v.SetConfigType("yaml")
	if err := v.ReadConfig(bytes.NewReader(data)); err != nil {
		return cfg, []*Problem{unread(path, data, err)}
	}
	cfg, problems := apply(cfg, path, v)
	cfg.ShardsSaid = v.Get("shards") != nil
	return cfg, problems
}

// lineOf is where the parser says that it stopped.
var lineOf = pattern.Late(`line (\d+):`)

// unread says in one line why a file is no YAML. The parser does not name a tab everywhere (libyaml's "cannot start any token").
func unread(path string, data []byte, err error) *Problem {
	text := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "While parsing config: yaml: ")
	if at := lineOf().FindStringSubmatch(text); at != nil {
		n, _ := strconv.Atoi(at[1]) // 0 where it is no number
		lines := strings.Split(string(data), "\n")
		if n > 0 && n <= len(lines) && strings.Contains(lines[n-1][:len(lines[n-1])-len(strings.TrimLeft(lines[n-1], " \t"))], "\t") {
			return &Problem{File: path, Reason: fmt.Sprintf("line %d begins with a tab", n), Err: err, Accepted: "spaces in its place"}
		}
	}
	return &Problem{File: path, Reason: text, Err: err, Accepted: "YAML of `key: value` lines"}
}

// typed is a value so that it reads as what it is: 10.0 is no 10, and neither is '10'.
func typed(value any) string {
	switch v := value.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return strconv.FormatFloat(v, 'f', 1, 64)
		}
	case string:
		_, notNumber := strconv.ParseFloat(v, 64)
		_, notBool := strconv.ParseBool(v)
		if v == "" || notNumber == nil || notBool == nil {
			return "'" + v + "'"
		}
	case []any:
		each := make([]string, len(v))
		for i := range v {
			each[i] = typed(v[i])
		}
		return "[" + strings.Join(each, ", ") + "]"
	case map[string]any:
		return inBraces(v)
	}
	return fmt.Sprint(value)
}

func inBraces[T any](values map[string]T) string {
	var each []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		each = append(each, name+": "+typed(values[name]))
	}
	return "{" + strings.Join(each, ", ") + "}"
}

// ofKeys are the names in a file; what is below a key is a part of its value.
func ofKeys(names []string) []string {
	for i, name := range names {
		for _, key := range keys {
			if strings.HasPrefix(name, key.Name+".") {
				names[i] = key.Name
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// apply decodes key by key, so that one wrong key costs no other one its value.
func apply(cfg Config, path string, v *viper.Viper) (Config, []*Problem) {
	var problems []*Problem
	for _, name := range ofKeys(v.AllKeys()) {
		key, known := keyByName(name)
		if v.Get(name) == nil && (known || isSection(name)) {
			continue // `key:` with nothing behind it
		}
		if became, is := gone[name]; is {
			problems = append(problems, &Problem{File: path, Key: name, Reason: "there is no such key any more, " + became, Accepted: "a file without that line"})
			continue
		}
		if !known {
			problems = append(problems, &Problem{File: path, Key: name, Reason: "there is no such key" + suggestion(name),
				Accepted: accepts(name)})
			continue
		}
		next := cfg
		if err := v.UnmarshalKey(name, key.at(&next), strict); err != nil || !key.right(&next) {
			problems = append(problems, &Problem{File: path, Key: name, Err: err,
				Reason: typed(v.Get(name)) + " is not a value of this key", Accepted: key.accepted()})
			continue
		}
		cfg = next
	}
	return cfg, problems
}

// strict turns viper's guesses off: true is not the number 1, 60 is not a minute, 10.5 slices are none.
func strict(decoder *mapstructure.DecoderConfig) {
	decoder.WeaklyTypedInput = false
	decoder.ZeroFields = true // a list that is given replaces its default, in memory of its own
	decoder.DecodeHook = mapstructure.ComposeDecodeHookFunc(refuseGuesses, mapstructure.StringToTimeDurationHookFunc())
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
		value := key.get(&c)
		if d, isTime := value.(time.Duration); isTime {
			value = d.String()
		}
		v.Set(key.Name, value)
	}
	var out bytes.Buffer
	if err := v.WriteConfigTo(&out); err != nil {
		return "# " + err.Error() + "\n"
	}
	return out.String()
}
