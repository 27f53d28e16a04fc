// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// removal is the packages' own script on a machine with these files of Slurm's, and programs that stand where its PATH leads.
type removal struct{ dir, run string }

func newRemoval(t *testing.T) removal {
	t.Helper()
	r := removal{dir: t.TempDir()}
	r.run = filepath.Join(r.dir, "run")
	if err := os.Mkdir(r.run, 0o755); err != nil {
		t.Fatal(err)
	}
	r.program(t, "vgpuctl", "echo 'run_dir: "+r.run+"'")
	r.program(t, "scontrol", "echo 'scontrol: error: Unable to contact slurm controller' >&2; exit 1")
	r.program(t, "srun", "echo '      --version'")
	r.file(t, "slurm.conf", "ClusterName=c\nSlurmctldHost=elsewhere(127.0.0.1)\nSlurmctldPort=1\nMessageTimeout=1\nNodeName=n1 CPUs=2\n")
	return r
}

func (r removal) file(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (r removal) program(t *testing.T, name, body string) {
	t.Helper()
	r.file(t, name, "#!/bin/sh\n"+body+"\n")
}

// withGres has the real vgpu-gres there, as where not the plugin's package alone is installed.
func (r removal) withGres(t *testing.T) {
	t.Helper()
	built, err := filepath.Abs("../build/vgpu-gres")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(built); err != nil {
		t.Skipf("make build: %v", err)
	}
	if err := os.Symlink(built, filepath.Join(r.dir, "vgpu-gres")); err != nil {
		t.Fatal(err)
	}
}

func (r removal) asked(t *testing.T, how string) (refused bool, says string) {
	t.Helper()
	cmd := exec.Command("sh", "packages/preremove.sh", how)
	cmd.Env = []string{"PATH=" + r.dir + ":/usr/bin:/bin", "SLURM_CONF=" + filepath.Join(r.dir, "slurm.conf"), "SLURMD_NODENAME=n1"}
	out, err := cmd.CombinedOutput()
	return err != nil, string(out)
}

// TestRemovalIsRefusedWhileSlurmUsesIt: with the lines still in Slurm's files every job would fail.
func TestRemovalIsRefusedWhileSlurmUsesIt(t *testing.T) {
	r := newRemoval(t)
	r.withGres(t)
	if refused, says := r.asked(t, "remove"); refused {
		t.Fatalf("nothing uses it, and it is refused: %s", says)
	}
	for name, text := range map[string]string{
		"plugstack.conf": "required /usr/lib/slurm/spank_vgpu.so\n",
		"slurm.conf":     "ClusterName=c\nSlurmctldHost=elsewhere(127.0.0.1)\nSlurmctldPort=1\nMessageTimeout=1\nNodeName=n1 CPUs=2\nProlog=/usr/lib/slurm-vgpu/vgpu-prolog\n",
	} {
		before, _ := os.ReadFile(filepath.Join(r.dir, name))
		r.file(t, name, text)
		for _, how := range []string{"remove", "0"} { // dpkg, rpm
			refused, says := r.asked(t, how)
			if !refused || !strings.Contains(says, filepath.Join(r.dir, name)+":") || !strings.Contains(says, "touch "+r.run+"/remove-anyway") {
				t.Errorf("%s, %s: refused %v: %s", name, how, refused, says)
			}
		}
		if refused, says := r.asked(t, "upgrade"); refused {
			t.Errorf("%s: an upgrade is refused: %s", name, says)
		}
		r.file(t, "run/remove-anyway", "")
		if refused, says := r.asked(t, "remove"); refused {
			t.Errorf("%s: refused, whatever an administrator says: %s", name, says)
		}
		if err := os.Remove(filepath.Join(r.run, "remove-anyway")); err != nil {
			t.Fatal(err)
		}
		r.file(t, name, string(before))
	}
}

// TestRemovalOfThePluginAlone: on a login node there may be no other package, and Slurm says what it has loaded.
func TestRemovalOfThePluginAlone(t *testing.T) {
	r := newRemoval(t)
	if err := os.Remove(filepath.Join(r.dir, "vgpuctl")); err != nil {
		t.Fatal(err)
	}
	if refused, says := r.asked(t, "remove"); refused {
		t.Errorf("nothing uses it, and it is refused: %s", says)
	}
	r.program(t, "srun", "echo 'Options provided by plugins:'; echo '      --vgpu-mem=SIZE'")
	if refused, says := r.asked(t, "remove"); !refused || !strings.Contains(says, "srun loads spank_vgpu.so") {
		t.Errorf("refused %v: %s", refused, says)
	}
}

// TestRemovalLeavesNothingBehind: neither file systems, nor an empty list of libraries, nor units that systemd goes on to show as failed. What
// the site has in that list stays, and all of it while a job's tasks stand on it.
func TestRemovalLeavesNothingBehind(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a file system has to be mounted")
	}
	for name, tc := range map[string]struct{ before, want string }{
		"nothing":             {":", "pages not mounted, no list"},
		"the site's own":      {"echo /opt/site.so >/etc/ld.so.preload.new; mv /etc/ld.so.preload.new /etc/ld.so.preload", "pages not mounted, a list"},
		"a job, and by force": {"echo '[7,0,1,1,5]' >$R/run/state.json; touch $R/run/remove-anyway", "pages mounted, a list"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRemoval(t)
			r.program(t, "systemctl", "echo \"$*\" >>"+r.dir+"/asked")
			script := `set -e
export R PATH=$R:/usr/sbin:/usr/bin:/sbin:/bin SLURM_CONF=$R/slurm.conf
mkdir $R/etc $R/run/pages && mount --bind $R/etc /etc && mount -t tmpfs run /run && mkdir -p /run/systemd/system
: >/etc/ld.so.preload
mount -t tmpfs pages $R/run/pages
` + strings.Replace(tc.before, "/opt/site.so", r.dir+"/none.so", 1) + ` 2>/dev/null
sh packages/preremove.sh remove 2>/dev/null && sh packages/postremove.sh remove 2>/dev/null
grep -q " $R/run/pages " /proc/self/mountinfo && echo -n "pages mounted, " || echo -n "pages not mounted, "
[ -e /etc/ld.so.preload ] && echo "a list" || echo "no list"`
			cmd := exec.Command("unshare", "--mount", "sh", "-c", script)
			cmd.Env = []string{"R=" + r.dir}
			out, err := cmd.Output()
			if got := strings.TrimSpace(string(out)); err != nil || got != tc.want {
				t.Errorf("%v: want %q, got %q", err, tc.want, got)
			}
			asked, _ := os.ReadFile(filepath.Join(r.dir, "asked"))
			for _, want := range []string{"slurm-vgpu-inventory*", "reset-failed slurm-vgpu-*"} {
				if !strings.Contains(string(asked), want) {
					t.Errorf("systemctl is not asked for %s: %s", want, asked)
				}
			}
		})
	}
}
