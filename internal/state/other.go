// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// versionOfObjects had a slice as an object, and a checksum of all the rest.
const versionOfObjects = 1

// decodeOther reads what this release does not write: the file of an older one, and why it is none.
func decodeOther(data []byte) (image, error) {
	var f struct {
		Version  int             `json:"version"`
		BootID   string          `json:"boot_id"`
		Checksum string          `json:"checksum"`
		Slices   json.RawMessage `json:"slices"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return image{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	// Before the checksum: a later version may compute it otherwise.
	if f.Version > Version {
		return image{}, fmt.Errorf("%w: %d, this release knows %d", ErrVersion, f.Version, Version)
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%d\n%s\n", f.Version, f.BootID)
	hash.Write(f.Slices)
	if f.Version == Version || f.Checksum != "sha256:"+hex.EncodeToString(hash.Sum(nil)) {
		return image{}, fmt.Errorf("%w: its checksum is not that of its content", ErrCorrupt)
	}
	if f.Version != versionOfObjects {
		return image{}, fmt.Errorf("%w: version %d", ErrCorrupt, f.Version)
	}
	var objects []struct {
		Slice
		Since time.Time `json:"since"`
	}
	if err := json.Unmarshal(f.Slices, &objects); err != nil {
		return image{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	i := image{State: State{BootID: f.BootID}}
	for n, object := range objects {
		if !object.holds() {
			return image{}, fmt.Errorf("%w: slices[%d] is none: %+v", ErrCorrupt, n, object)
		}
		object.Slice.Since = MillisOf(object.Since)
		i.Slices = append(i.Slices, object.Slice)
	}
	i.rows = make([]span, len(i.Slices))
	return i, nil
}
