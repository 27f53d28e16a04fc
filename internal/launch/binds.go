// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"slices"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// The variables with the mounts of Apptainer and Singularity for each container. With --contain both programs leave out /dev,
// with the step's folder in it, and the mounts of their configuration.
const (
	apptainerBind   = "APPTAINER_BIND"
	singularityBind = "SINGULARITY_BIND"
	// maxBindsBytes fits into a variable of a plan (VGPU_VALUE_BYTES); longer lists stay as they are.
	maxBindsBytes = 8000
)

var ownBinds = []string{rundir.Self, "/etc/ld.so.preload"}

// DropBinds takes what is ours out of a list of such mounts.
func DropBinds(list string) string {
	kept := slices.DeleteFunc(strings.Split(list, ","), func(bind string) bool { return slices.Contains(ownBinds, bind) })
	return strings.Join(kept, ",")
}

// Binds are the job's own lists.
type Binds struct {
	Apptainer, Singularity string
	Cut                    bool // they are not all of it
}

// env puts ours in front. Apptainer takes Singularity's variable where it has none of its own, and warns where they
// differ.
func (b Binds) env() []grant.EnvVar {
	if b.Cut {
		return nil
	}
	apptainer, singularity := DropBinds(b.Apptainer), DropBinds(b.Singularity)
	if apptainer == "" {
		apptainer = singularity
	} else if singularity == "" {
		singularity = apptainer
	}
	with := func(list string) string {
		if list == "" {
			return strings.Join(ownBinds, ",")
		}
		return strings.Join(ownBinds, ",") + "," + list
	}
	apptainer, singularity = with(apptainer), with(singularity)
	if max(len(apptainer), len(singularity)) > maxBindsBytes {
		return nil
	}
	return []grant.EnvVar{{Name: apptainerBind, Value: apptainer}, {Name: singularityBind, Value: singularity}}
}
