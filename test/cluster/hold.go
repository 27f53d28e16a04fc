// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// GraceToStop is how long a cluster that is told to end may take to end its jobs.
const GraceToStop = 6 * time.Second

const heldFile = "held-by"

// Hold notes that the cluster stays up on behalf of a build folder, and writes the script "enter".
func (c *Cluster) Hold(build string) error {
	if err := os.WriteFile(c.Home.Path("enter"), []byte(c.enterScript()), 0o755); err != nil {
		return err
	}
	return os.WriteFile(c.Home.Path(heldFile), []byte(build), 0o644)
}

// Held lists the living clusters that are held on behalf of a build folder.
func Held(build string) []Home {
	var held []Home
	for _, home := range homes() {
		by, err := os.ReadFile(home.Path(heldFile))
		if err == nil && string(by) == build && recordedAlive(string(home), "keeper") {
			held = append(held, home)
		}
	}
	return held
}

// enterScript starts a shell of one of the cluster's users in the cluster's namespace.
func (c *Cluster) enterScript() string {
	var b strings.Builder
	first := c.Users[0].Name
	fmt.Fprintf(&b, `#!/bin/sh
# enter [USER [COMMAND LINE]]: a shell in this cluster, as root or one of its users (%s)
user=${1:-%s}
[ $# -gt 0 ] && shift
[ "$(id -u)" = 0 ] || exec sudo "$0" "$user" "$@"
case $user in
`, first, first)
	for _, u := range append([]User{c.Root()}, c.Users...) {
		fmt.Fprintf(&b, "%s) ids='--reuid=%d --regid=%d --clear-groups'; env='", u.Name, u.UID, u.GID)
		for _, assignment := range c.Env(u) {
			if !strings.ContainsAny(assignment, "' \t\n*?[") {
				fmt.Fprintf(&b, "%s ", assignment)
			}
		}
		b.WriteString("' ;;\n")
	}
	namespace := ""
	if !c.Home.InPlace() {
		// The keeper's, which lives as long as the cluster; with its root, in case that is a chroot's.
		for _, id := range recorded(c.Home.Path(pidsFile))["keeper"] {
			namespace = fmt.Sprintf("nsenter --target %d --mount --root --wd=%s", id.pid, c.Home)
		}
	}
	fmt.Fprintf(&b, `*) echo "enter: no user $user in this cluster" >&2; exit 2 ;;
esac
if [ $# -gt 0 ]; then set -- -c "$*"; else set -- --norc -i; fi
exec %s setpriv $ids env -i $env TERM="$TERM" PS1="[$user@vgpu \\W]\\$ " \
	/bin/sh -c 'cd "$HOME" && exec /bin/bash "$@"' sh "$@"
`, namespace)
	return b.String()
}
