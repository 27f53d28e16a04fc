// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// makesOne is a script that says whether it can make a user namespace.
const makesOne = "if unshare --user true 2>/dev/null; then echo MADE; else echo refused; fi"

// userNamespaces counts what scripts said.
func userNamespaces(t *testing.T, out string, made, refused int) {
	t.Helper()
	if strings.Count(out, "MADE\n") != made || strings.Count(out, "refused\n") != refused {
		t.Errorf("want %d user namespaces made and %d refused:\n%s", made, refused, out)
	}
}

const inSlice = " --gres=vgpu:1 --vgpu-mem=3000 "

func TestUserNamespacesAreAllowed(t *testing.T) {
	needStrict(t)
	begin(t)
	for _, u := range []cluster.User{one, two} {
		userNamespaces(t, batch(t, u, inSlice, makesOne), 1, 0)
		userNamespaces(t, ok(t, u, "srun"+inSlice+"bash -c '"+makesOne+"'").Stdout, 1, 0)
	}
}

// The kernel's side of it, each call in each of its forms, is tried in test/spank.
func TestUserNamespacesCanBeDenied(t *testing.T) {
	needStrict(t)
	begin(t)
	configured(t, "user_namespaces: deny\n")
	for _, u := range []cluster.User{one, two} {
		t.Run("of "+u.Name, func(t *testing.T) {
			out := batch(t, u, inSlice, makesOne+`
				(`+makesOne+`) & wait
				setsid --wait bash -c '`+makesOne+`'
				srun bash -c '`+makesOne+`'
				grep NoNewPrivs /proc/self/status
				vgpu-fill`)
			userNamespaces(t, out, 0, 4)
			wantLimit(t, out, 3000)
			if !strings.Contains(out, "NoNewPrivs:\t0\n") {
				t.Errorf("sudo and the like do not work any more:\n%s", out)
			}
			userNamespaces(t, ok(t, u, "srun -n2"+inSlice+"bash -c '"+makesOne+"'").Stdout, 0, 2)
		})
	}
	t.Run("in scripts of a user", deniedToScripts)
	// Who has no slice has none to get out of, but could make mounts there without number.
	userNamespaces(t, batch(t, one, "", makesOne+"\nsrun bash -c '"+makesOne+"'"), 0, 2)
}

// slurmstepd runs the one before the task, and the other by itself.
func deniedToScripts(t *testing.T) {
	script, found := filepath.Join(one.Home, "around.sh"), filepath.Join(one.Home, "around.out")
	executable(t, script, "#!/bin/bash\n{ "+makesOne+"; echo end; } >>"+found+"\n")
	_ = os.Remove(found)
	ok(t, one, "srun --task-prolog="+script+" --task-epilog="+script+inSlice+"true")
	until(t, "the end of both scripts", 30*time.Second, func() error {
		data, err := os.ReadFile(found)
		if err == nil && strings.Count(string(data), "end\n") != 2 {
			err = fmt.Errorf("they wrote %q", data)
		}
		return err
	})
	data, _ := os.ReadFile(found)
	userNamespaces(t, string(data), 0, 2)
}

// What the configuration's manual says of containers.
func TestContainersWithoutUserNamespaces(t *testing.T) {
	needStrict(t)
	begin(t)
	need(t, one, "bwrap", "bwrap --version")
	configured(t, "user_namespaces: deny\n")
	out := batch(t, one, inSlice, "exec 2>&1\nbwrap --dev-bind / / echo RAN\ntrue")
	if strings.Contains(out, "RAN") || !strings.Contains(out, "bwrap: ") {
		t.Errorf("bubblewrap has made a user namespace:\n%s", out)
	}
}
