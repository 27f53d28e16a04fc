// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
)

// Database is the MariaDB server of this machine, as its files would start it.
type Database struct {
	Version string // "11.8.9"
	Options string // "--socket=/run/… --innodb-snapshot-isolation=OFF"
}

var (
	mariadbVersion = pattern.Late(`Ver ([0-9]+)\.([0-9]+)\.([0-9]+)-MariaDB`)
	// The last one counts; MariaDB takes - for _, and loose- says that a server may lack it.
	snapshotOption = pattern.Late(`(?i)--(?:loose[-_])?((?:skip[-_]|disable[-_])?innodb[-_]snapshot[-_]isolation)(?:=(\S*))?(?:\s|$)`)
)

// LocalDatabase asks a server's program; nil: there is none on this machine.
func LocalDatabase(ctx context.Context, program string) *Database {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	say := func(argument string) string {
		cmd := exec.CommandContext(ctx, program, argument)
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
		out, err := cmd.Output()
		if err != nil {
			return ""
		}
		return string(out)
	}
	found := mariadbVersion().FindStringSubmatch(say("--version"))
	if found == nil {
		return nil
	}
	return &Database{Version: strings.Join(found[1:], "."), Options: say("--print-defaults")}
}

// snapshotIsolation says whether the server runs with innodb_snapshot_isolation, which is on from
// 11.6.2 on.
func (d Database) snapshotIsolation() bool {
	var on bool
	for i, least := range []int{11, 6, 2} {
		part, _ := strconv.Atoi(strings.Split(d.Version, ".")[i])
		if on = part >= least; part != least {
			break
		}
	}
	for _, option := range snapshotOption().FindAllStringSubmatch(d.Options, -1) {
		off := strings.EqualFold(option[2], "OFF") || option[2] == "0" || strings.EqualFold(option[2], "FALSE")
		off = off || !strings.HasPrefix(strings.ToLower(option[1]), "innodb")
		on = !off
	}
	return on
}

// database: with innodb_snapshot_isolation, two that write to a job's row at once make the later
// fail. Slurm does not support it, and slurmdbd 26.05.3 and later end themselves over it
// (src/database/mysql_common.c); our AdminComment is a second writer beside slurmctld's.
func (c *site) database() {
	const check = "database"
	kind, _, _ := c.slurm.Value("AccountingStorageType")
	if !strings.EqualFold(kind, "accounting_storage/slurmdbd") {
		return
	}
	self, _ := os.Hostname() // without a name it is no host but localhost
	// Only the machine of slurmdbd has the file, and only root may read it.
	if conf, err := slurmconf.Read(filepath.Join(filepath.Dir(c.SlurmConf), "slurmdbd.conf")); err == nil {
		if host, _, ok := conf.Value("StorageHost"); ok && !isLocal(host, self) {
			c.Warn(check, "on "+host+": vgpu-gres check, or innodb_snapshot_isolation=OFF in my.cnf of MariaDB 11.6.2 and later", "not checked: it is on %s", host)
			return
		}
	}
	switch {
	case c.Database == nil: // it is looked at where it is
	case c.Database.snapshotIsolation():
		c.Bad(check, "[mariadb] of my.cnf: innodb_snapshot_isolation=OFF, and restart MariaDB and slurmdbd",
			"MariaDB %s runs with innodb_snapshot_isolation: a usage record that is written while slurmctld writes fails, and makes slurmdbd 26.05 end itself", c.Database.Version)
	default:
		c.OK(check, "MariaDB %s runs without innodb_snapshot_isolation", c.Database.Version)
	}
}

// isLocal says whether a host is this one, which calls itself self.
func isLocal(host, self string) bool {
	short, _, _ := strings.Cut(self, ".")
	return slices.Contains([]string{"localhost", "127.0.0.1", "::1", self, short}, host)
}
