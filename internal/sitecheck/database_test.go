// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSnapshotIsolation(t *testing.T) {
	for _, tc := range []struct {
		version, options string
		want             bool
	}{
		{"10.11.19", "--port=3306", false}, {"11.4.10", "", false}, {"11.6.1", "", false}, {"11.6.2", "", true}, {"11.8.9", "--port=3306", true}, {"12.0.0", "", true},
		{"11.8.9", "--a --innodb-snapshot-isolation=OFF --b", false}, {"11.8.9", "--innodb_snapshot_isolation=0", false},
		{"11.8.9", "--loose-innodb-snapshot-isolation=off", false}, {"11.8.9", "--skip-innodb-snapshot-isolation", false},
		{"11.8.9", "--loose_disable_innodb_snapshot_isolation --x", false},
		{"11.8.9", "--innodb-snapshot-isolation=OFF --innodb-snapshot-isolation", true},
		{"10.11.19", "--innodb-snapshot-isolation=ON", true}, {"11.8.9", "--innodb-snapshot-isolation=OFF-not", true},
	} {
		if got := (Database{tc.version, tc.options}).snapshotIsolation(); got != tc.want {
			t.Errorf("%s %s: %v", tc.version, tc.options, got)
		}
	}
}

func TestThisHostHasManyNames(t *testing.T) {
	for host, local := range map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true, "n1": true, "n1.example.org": true,
		"n10": false, "n1.example.com": false, "example.org": false, "db": false} {
		if got := isLocal(host, "n1.example.org"); got != local {
			t.Errorf("%s is this host: %v", host, got)
		}
	}
}

func TestDatabaseOfTheSite(t *testing.T) {
	site, dir := goodSite(t)
	server := filepath.Join(dir, "mariadbd")
	write(t, server, `#!/bin/sh
case $1 in
--version) echo "mariadbd  Ver 11.8.9-MariaDB-4 from Debian for debian-linux-gnu on x86_64";;
--print-defaults) echo "mariadbd would have been started with the following arguments:"; cat "$(dirname "$0")/options";;
esac
`)
	write(t, filepath.Join(dir, "options"), "--port=3306 \n")
	site.Database = LocalDatabase(context.Background(), server)
	want := []string{"database: MariaDB 11.8.9 runs with innodb_snapshot_isolation: a usage record that is written while slurmctld writes fails, and makes slurmdbd 26.05 end itself" +
		" -> [mariadb] of my.cnf: innodb_snapshot_isolation=OFF, and restart MariaDB and slurmdbd"}
	if diff := cmp.Diff(want, findings(t, site, dir)); diff != "" {
		t.Error(diff)
	}
	for name, change := range map[string]func(){
		"switched off":   func() { write(t, filepath.Join(dir, "options"), "--innodb-snapshot-isolation=OFF \n") },
		"another server": func() { write(t, server, "#!/bin/sh\necho mysqld Ver 8.4.0 for Linux\n") },
		"no server":      func() { write(t, server, "no program") },
		"elsewhere":      func() { write(t, filepath.Join(dir, "slurmdbd.conf"), "StorageHost=db7\n") },
	} {
		change()
		if name != "elsewhere" {
			site.Database = LocalDatabase(context.Background(), server)
		} else {
			site.Database = &Database{Version: "11.8.9"}
		}
		if diff := cmp.Diff([]string{}, findings(t, site, dir)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		all, err := site.Check()
		said := false
		for _, f := range all {
			said = said || f.Check == "database" && (strings.Contains(f.Says, "not checked") || strings.Contains(f.Says, "without"))
		}
		if err != nil || said != (site.Database != nil) {
			t.Errorf("%s: the database is said to be looked at: %v, %v", name, said, err)
		}
		write(t, filepath.Join(dir, "slurmdbd.conf"), "StorageHost=localhost\n")
	}
}
