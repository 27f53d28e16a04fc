// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package launch

import "testing"

func TestPreloadLists(t *testing.T) {
	for _, c := range []struct{ list, dropped, prepended string }{
		{"", "", "/l/libslurm-vgpu.so"},
		{"/a.so", "/a.so", "/l/libslurm-vgpu.so:/a.so"},
		{"/a.so /b.so", "/a.so:/b.so", "/l/libslurm-vgpu.so:/a.so:/b.so"},
		{"/l/libslurm-vgpu.so", "", "/l/libslurm-vgpu.so"},
		{"/a.so:/old/libslurm-vgpu.so::/b.so:/l/libslurm-vgpu.so", "/a.so:/b.so", "/l/libslurm-vgpu.so:/a.so:/b.so"},
		{"/a/libslurm-vgpu.so.bak", "/a/libslurm-vgpu.so.bak", "/l/libslurm-vgpu.so:/a/libslurm-vgpu.so.bak"},
	} {
		if got := DropPreload(c.list); got != c.dropped {
			t.Errorf("DropPreload(%q) = %q, want %q", c.list, got, c.dropped)
		}
		got := prependPreload(c.list, "/l/libslurm-vgpu.so")
		if got != c.prepended {
			t.Errorf("prependPreload(%q) = %q, want %q", c.list, got, c.prepended)
		}
		if again := prependPreload(got, "/l/libslurm-vgpu.so"); again != got {
			t.Errorf("prependPreload twice: %q, want %q", again, got)
		}
	}
	if got, want := prependPreload("/a.so:/x/other.so", "/x/other.so"), "/x/other.so:/a.so"; got != want {
		t.Errorf("a library of another name: got %q, want %q", got, want)
	}
}
