// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package devfiles

import (
	"os"
	"path/filepath"
	"testing"
)

// What Go finds in /etc/group by itself, getent finds there as well.
func TestGetentKnowsGroups(t *testing.T) {
	number, err := ask("root")
	if err != nil || number != "0" {
		t.Errorf("root has the number %q, %v", number, err)
	}
	if number, err := ask("no-such-group"); err == nil {
		t.Errorf("a group that is not there has the number %q", number)
	}
}

// A group of a directory service stands in no file of the node.
func TestAGroupOfTheSitesDirectoryIsFound(t *testing.T) {
	before := getent
	t.Cleanup(func() { getent = before })
	getent = filepath.Join(t.TempDir(), "getent")
	for _, tc := range []struct {
		says string
		want uint32
		ok   bool
	}{
		{"vgpu-admins:*:70012:ann,bob", 70012, true}, {"vgpu-admins:*:many:", 0, false}, {"others:*:70012:", 0, false},
		{"vgpu-admins:70012", 0, false}, {"", 0, false},
	} {
		script := "#!/bin/sh\n[ \"$*\" = '-- group vgpu-admins' ] && echo '" + tc.says + "'\n"
		if err := os.WriteFile(getent, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		gid, err := lookUp("vgpu-admins")
		if gid != tc.want || (err == nil) != tc.ok {
			t.Errorf("%q: %d, %v", tc.says, gid, err)
		}
	}
}
