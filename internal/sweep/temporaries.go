// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// temporaries removes what killed writers left. The state and the records that epilogs write are written under
// the state's lock, so that under it an old file is nobody's. What else is in the run directory, on tmpfs, and in the
// history takes milliseconds to write.
func (s Sweeper) temporaries(ctx context.Context, old func(time.Time) bool) (n int, err error) {
	if len(s.oldTemporaries(old)) == 0 {
		return 0, nil
	}
	waiting, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	held, err := trusted.Lock(waiting, s.Store.Dir.Lock())
	if err != nil {
		return 0, err
	}
	defer held.Close()
	return remove(s.oldTemporaries(old)), nil
}

// oldTemporaries is what Count counts and Sweep takes away.
func (s Sweeper) oldTemporaries(old func(time.Time) bool) (paths []string) {
	for _, dir := range []string{string(s.Store.Dir), s.Store.Dir.Walls(), s.Config.Spool().Usage(), s.Config.Spool().History()} {
		paths = append(paths, trusted.Temporaries(dir, old, func(name string) bool { return strings.HasSuffix(name, ".json") })...)
	}
	if s.Store.JobMap != "" { // whose files are named by a number, and nothing else there is one
		paths = append(paths, trusted.Temporaries(s.Store.JobMap, old, func(name string) bool { return name == "" })...)
	}
	return paths
}

func remove(paths []string) (n int) {
	for _, path := range paths {
		if os.Remove(path) == nil {
			n++
		}
	}
	return n
}
