// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"encoding/json"
)

// decode reads a record, and in Later what this build has no fields for: a reporter that is at work outlives an upgrade.
func decode(data []byte) (rec Record, err error) {
	if err := json.Unmarshal(data, &rec); err != nil {
		return Record{}, err
	}
	known, err := json.Marshal(rec)
	if err != nil {
		return Record{}, err
	}
	rec.Later = besides(tree(data), tree(known))
	return rec, nil
}

func encode(rec Record) ([]byte, error) {
	data, err := json.Marshal(rec)
	if err != nil || rec.Later == nil {
		return data, err
	}
	return json.Marshal(with(tree(data), rec.Later))
}

func tree(data []byte) (is any) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	_ = decoder.Decode(&is) // it was decoded or encoded before
	return is
}

// besides is the part of a tree that another one does not have; nil: there is none. Lists of different lengths say nothing of each other.
func besides(all, known any) any {
	switch all := all.(type) {
	case map[string]any:
		known, _ := known.(map[string]any)
		rest := map[string]any{}
		for key, value := range all {
			if part, is := known[key]; !is {
				rest[key] = value
			} else if more := besides(value, part); more != nil {
				rest[key] = more
			}
		}
		if len(rest) > 0 {
			return rest
		}
	case []any:
		known, _ := known.([]any)
		rest, found := make([]any, len(all)), false
		for i := range all {
			if len(known) == len(all) {
				rest[i] = besides(all[i], known[i])
				found = found || rest[i] != nil
			}
		}
		if found {
			return rest
		}
	}
	return nil
}

// with puts such a part back.
func with(known, rest any) any {
	switch rest := rest.(type) {
	case map[string]any:
		if known, is := known.(map[string]any); is {
			for key, value := range rest {
				if part, is := known[key]; is {
					value = with(part, value)
				}
				known[key] = value
			}
		}
	case []any:
		if known, is := known.([]any); is && len(known) == len(rest) {
			for i := range known {
				known[i] = with(known[i], rest[i])
			}
		}
	}
	return known
}

// LaterFigures are the figures of a slice that a later build counted.
func (r Record) LaterFigures(slice int) map[string]json.RawMessage {
	of, _ := r.Later.(map[string]any)
	devices, _ := of["devices"].([]any)
	if slice >= len(devices) {
		return nil
	}
	data, err := json.Marshal(devices[slice])
	if err != nil {
		return nil
	}
	return FiguresBesides(data, nil)
}

// FiguresBesides are the members of an object that can be figures, and are none of those that are known; nil: there are none.
func FiguresBesides(object []byte, known map[string]bool) (later map[string]json.RawMessage) {
	var all map[string]json.RawMessage
	if json.Unmarshal(object, &all) != nil {
		return nil
	}
	for name, value := range all {
		if !known[name] && bytes.ContainsAny(value[:1], "-0123456789tf") {
			if later == nil {
				later = map[string]json.RawMessage{}
			}
			later[name] = value
		}
	}
	return later
}
