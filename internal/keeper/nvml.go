// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// nvmlSampler queries NVML.
type nvmlSampler struct {
	session  discover.Session
	activity map[device.UUID]*discover.Activity
	store    state.Store
	auditor  audit.Auditor
	heirs    heirSearch
}

// OpenSampler starts NVML.
func OpenSampler(library, deviceDir string, store state.Store, auditor audit.Auditor) (Sampler, error) {
	lib, err := discover.Library(library)
	if err != nil {
		return nil, err
	}
	session, err := discover.Open(lib)
	if err != nil {
		return nil, err
	}
	return &nvmlSampler{session: session, activity: map[device.UUID]*discover.Activity{}, store: store, auditor: auditor,
		heirs: heirSearch{deviceDir: deviceDir, auditor: auditor}}, nil
}

func (s *nvmlSampler) Active(gpu device.UUID) (part float64, known bool) {
	a := s.activity[gpu]
	if a == nil {
		var err error
		if a, err = s.session.Activity(gpu); err != nil {
			return 0, false
		}
		s.activity[gpu] = a
	}
	return a.Since()
}

func (s *nvmlSampler) Holders(gpu device.UUID) (pids map[int]uint32, known bool) {
	found := s.session.Holders([]device.UUID{gpu})[gpu]
	if found.Err != nil {
		return nil, false
	}
	current, err := s.store.Read()
	if err != nil {
		return nil, false
	}
	var all []int
	for _, held := range found.Processes {
		all = append(all, held.PID)
	}
	if pids, err = s.auditor.Owners(current.Slices, all); err != nil {
		return nil, false
	}
	for _, pid := range all {
		if _, known := pids[pid]; !known {
			pids[pid] = 0
		}
	}
	return pids, true
}

func (s *nvmlSampler) Orphans(_ device.UUID, holders map[int]uint32) (found Orphans) {
	for pid := range holders {
		if channels.HasEnded(pid) {
			found.PIDs = append(found.PIDs, pid)
		}
	}
	if len(found.PIDs) == 0 {
		return found
	}
	slices.Sort(found.PIDs)
	current, err := s.store.Read()
	if err != nil {
		return found
	}
	alive := map[int]bool{}
	for pid := range holders {
		alive[pid] = !slices.Contains(found.PIDs, pid)
	}
	found.Heirs = s.heirs.find(current.Slices, found.PIDs, func(pid int) bool { return alive[pid] })
	return found
}

func (s *nvmlSampler) Only(gpu device.UUID) (pid int, known bool) {
	samples, err := s.session.Utilization(gpu, uint64(time.Now().Add(-justNow).UnixMicro()))
	if err != nil {
		return 0, false
	}
	for _, u := range samples {
		switch {
		case u.SMPercent == 0 || u.PID == pid:
		case pid != 0:
			return 0, false
		default:
			pid = u.PID
		}
	}
	return pid, pid != 0
}

func (s *nvmlSampler) Close() {
	for _, a := range s.activity {
		a.Close()
	}
	s.session.Close()
}
