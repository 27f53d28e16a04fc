// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
)

func TestBindsAreInFrontOfTheJobsOwn(t *testing.T) {
	const ours = "/run/slurm-vgpu/self,/etc/ld.so.preload"
	for name, tc := range map[string]struct {
		has                    Binds
		apptainer, singularity string
	}{
		"none":               {Binds{}, ours, ours},
		"Apptainer's":        {Binds{Apptainer: "/a,/b:/c:ro"}, ours + ",/a,/b:/c:ro", ours + ",/a,/b:/c:ro"},
		"Singularity's":      {Binds{Singularity: "/s"}, ours + ",/s", ours + ",/s"},
		"both":               {Binds{Apptainer: "/a", Singularity: "/s"}, ours + ",/a", ours + ",/s"},
		"those of the batch": {Binds{Apptainer: ours + ",/a", Singularity: ours}, ours + ",/a", ours + ",/a"},
	} {
		want := []grant.EnvVar{{Name: "APPTAINER_BIND", Value: tc.apptainer}, {Name: "SINGULARITY_BIND", Value: tc.singularity}}
		if diff := cmp.Diff(want, tc.has.env()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	for name, has := range map[string]Binds{"a list of which the end is not known": {Apptainer: "/a", Cut: true}, "a long list": {Singularity: strings.Repeat("/abcdefg,", 1000)}} {
		if got := has.env(); got != nil {
			t.Errorf("%s becomes %v", name, got)
		}
	}
}

func TestBindsAreDroppedForAJobWithin(t *testing.T) {
	for list, want := range map[string]string{"": "", "/run/slurm-vgpu/self,/etc/ld.so.preload": "", "/run/slurm-vgpu/self,/etc/ld.so.preload,/a": "/a", "/a,/run/slurm-vgpu/selfish": "/a,/run/slurm-vgpu/selfish"} {
		if got := DropBinds(list); got != want {
			t.Errorf("of %q stays %q, not %q", list, got, want)
		}
	}
}
