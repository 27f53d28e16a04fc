// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sentSite is a good site on a node that has its files from the controller, which may be this host: job_submit.lua is not sent.
func sentSite(t *testing.T) (Site, string) {
	t.Helper()
	site, dir := goodSite(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	edit(t, site.SlurmConf, "SlurmctldHost=elsewhere", "SlurmctldHost="+host)
	for _, name := range []string{"slurm.conf", "gres.conf", "cgroup.conf", "plugstack.conf"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "conf-cache", name), string(text))
	}
	if err := os.Symlink("conf-cache", filepath.Join(dir, "conf")); err != nil { // as /run/slurm/conf is one
		t.Fatal(err)
	}
	site.SlurmConf = filepath.Join(dir, "conf", "slurm.conf")
	return site, dir
}

func TestWhatTheControllerSent(t *testing.T) {
	for plugstack, want := range map[string][]string{
		"include DIR/plugstack.conf.d/*.conf\n": {},
		"required DIR/spank_vgpu.so\n":          {},
		"include plugstack.conf.d/*.conf\n": {
			"plugstack: DIR/conf/plugstack.conf has no line with spank_vgpu.so: it came from the controller, without what it includes" +
				" -> on the controller: plugstack.conf: required " + PluginPath()},
		"optional DIR/spank_vgpu.so\n": {
			"plugstack: DIR/conf/plugstack.conf:1: the plugin is optional: where it cannot be loaded, jobs run without a limit" +
				" -> on the controller: plugstack.conf: required " + PluginPath()},
	} {
		site, dir := sentSite(t)
		write(t, filepath.Join(dir, "conf-cache", "plugstack.conf"), strings.ReplaceAll(plugstack, "DIR", dir))
		if diff := cmp.Diff(want, findings(t, site, dir)); diff != "" {
			t.Errorf("%s: %s", plugstack, diff)
		}
	}
}

// A file that slurm.conf names is the node's own.
func TestWhatIsNotSentIsTheNodes(t *testing.T) {
	site, dir := sentSite(t)
	write(t, filepath.Join(dir, "own.conf"), "# nothing\n")
	edit(t, filepath.Join(dir, "conf-cache", "slurm.conf"), "ClusterName=c", "ClusterName=c\nPlugStackConfig="+filepath.Join(dir, "own.conf"))
	want := []string{"plugstack: DIR/own.conf has no line with spank_vgpu.so -> DIR/own.conf: required " + PluginPath()}
	if diff := cmp.Diff(want, findings(t, site, dir)); diff != "" {
		t.Error(diff)
	}
}
