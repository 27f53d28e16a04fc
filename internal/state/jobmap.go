// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// postJobMap writes for each GPU a file, named by its NVML index, with a line for each job that has a slice of it: what
// dcgm-exporter reads (--hpc-job-mapping-dir). Nothing is read there. Every file is
// made to say at every commit what the state says; files of GPUs that never had a slice are somebody else's.
func (tx *Tx) postJobMap() {
	folder := tx.store.JobMap
	if folder == "" {
		return
	}
	log := tx.store.Log
	if err := makeDir(folder); err != nil {
		log.Error("the files for DCGM with the jobs of the GPUs are not written", "reason", err)
		return
	}
	for index, jobs := range jobsByGPU(tx.slices, tx.gpus) {
		path := filepath.Join(folder, strconv.Itoa(int(index)))
		var err error
		if len(jobs) == 0 {
			err = os.Remove(path)
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		} else {
			err = trusted.WriteFile(path, []byte(strings.Join(jobs, "\n")+"\n"), 0o644)
		}
		if err != nil {
			log.Error("the file for DCGM with the jobs of a GPU is not written", "nvml_index", index, "reason", err)
		}
	}
}

// jobsByGPU has no jobs for a GPU that the state file knows and that holds no slice.
func jobsByGPU(held []Slice, known []gpu) map[device.NVMLIndex][]string {
	jobs := make(map[device.NVMLIndex][]string)
	for _, g := range known {
		jobs[g.Index] = nil
	}
	for _, s := range held {
		if id := strconv.FormatUint(uint64(s.Job), 10); !slices.Contains(jobs[s.Index], id) {
			jobs[s.Index] = append(jobs[s.Index], id)
		}
	}
	return jobs
}
