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
)

// Attempts to get around slurm-vgpu that no other test makes; docs/attempts.md has all of them. What is not held is tried as well: where one
// of those ways is closed some day, the document is to say so.

// levels are those of isolation, as SECURITY.md has them.
var levels = []struct{ name, isolation, config string }{
	{"preload", "preload", ""},
	{"strict", "strict", ""},
	{"closed", "strict", "user_namespaces: deny\nwithout_slice: mask\n"},
	{"wall", "wall", ""},
}

// tried is an attempt, with what it comes to at each level.
type tried struct {
	name, script string
	want         [4]string
}

func always(verdict string) [4]string { return [4]string{verdict, verdict, verdict, verdict} }

// whoDropsIt gets rid of the library where nothing but the environment holds it.
var whoDropsIt = [4]string{open, limited, limited, limited}

func attempts() []tried {
	fill, linker := fillHere(), "/lib64/ld-linux-x86-64.so.2 "
	return []tried{
		{"the linker told to inhibit paths", linker + "--inhibit-rpath '' " + fill, always(limited)},
		{"the linker told another name", linker + "--argv0 libcuda.so.1 " + fill, always(limited)},
		{"a copy of the linker", "cp " + linker + " ld && ./ld " + fill, always(limited)},
		{"the linker's tunables", "GLIBC_TUNABLES=glibc.rtld.optional_static_tls=0 " + fill, always(limited)},
		{"the C library in front, in another order", "LD_PRELOAD=libdl.so.2:libc.so.6:libm.so.6 " + fill, whoDropsIt},
		{"a library of ours by a link", "ln -s $OURS link.so; LD_PRELOAD=$PWD/link.so:libc.so.6 " + fill, always(limited)},
		{"an empty library with our file's name", compiled("libslurm-vgpu.so", "") + "LD_PRELOAD=$PWD/libslurm-vgpu.so " + fill, whoDropsIt},
		{"an empty library with our path as its name", compiled("twin.so", "-Wl,-soname,$OURS") + "LD_PRELOAD=$PWD/twin.so " + fill, whoDropsIt},
		{"a step of a larger slice", "srun --overlap --vgpu-mem=100% " + fill + " 2>&1; " + fill, always(limited)},
		{"forged requests", "SPANK_VGPU_REQUEST=mem=100000 SLURM_SPANK_VGPU_REQUEST=mem=100000 _SLURM_SPANK_OPTION_vgpu_vgpu_mem=100% srun --overlap " + fill + " || " + fill,
			always(limited)},
		{"no file may be written", "(ulimit -f 0; exec " + fill + ") 2>&1 | cat", always(limited)},
		{"root in a root folder of his own", "unshare --map-root-user chroot / " + fill + " || " + fill, always(limited)},
	}
}

// compiled makes a library with nothing in it.
func compiled(name, options string) string {
	return "gcc -shared -x c /dev/null -x none -o " + name + " " + options + " || exit 1\n"
}

// allAtOnce makes every attempt in one job, and returns what each wrote.
func allAtOnce(t *testing.T, all []tried) []string {
	t.Helper()
	var script strings.Builder
	script.WriteString("exec 2>&1\nOURS=$(head -n 1 /etc/ld.so.preload); OURS=${OURS:-${LD_PRELOAD%%:*}}\n")
	for i, a := range all {
		fmt.Fprintf(&script, "echo '<attempt>'; mkdir -p attempt%d; (cd attempt%[1]d\n%s\n); rm -rf attempt%[1]d\n", i, a.script)
	}
	out := batch(t, one, fmt.Sprintf("--gres=vgpu:1 --vgpu-mem=%d", containerMiB), script.String()+"true")
	said := strings.Split(out, "<attempt>\n")[1:]
	if len(said) != len(all) {
		t.Fatalf("of %d attempts %d were made:\n%s", len(all), len(said), out)
	}
	return said
}

// atEachLevel runs a test at every level of isolation; i is its column.
func atEachLevel(t *testing.T, test func(t *testing.T, i int)) {
	t.Helper()
	needStrict(t)
	begin(t)
	for i, level := range levels {
		t.Run(level.name, func(t *testing.T) {
			if level.isolation == "wall" {
				withWall(t)
				test(t, i)
				return
			}
			t.Cleanup(func() { c.Isolation = "strict" })
			c.Isolation = level.isolation
			configured(t, level.config)
			t.Cleanup(func() { c.Isolation = "strict" }) // before the file is written again
			test(t, i)
		})
	}
}

func TestAttemptsToShakeOffTheLibrary(t *testing.T) {
	need(t, one, "gcc", "gcc --version")
	atEachLevel(t, func(t *testing.T, i int) {
		all := attempts()
		for n, said := range allAtOnce(t, all) {
			t.Run(all[n].name, func(t *testing.T) {
				if got := verdict(t, said); got != all[n].want[i] {
					t.Errorf("%s, want %s:\n%s", got, all[n].want[i], said)
				}
			})
		}
	})
}

// The job's own files: a page that is put back takes less off the limit, one that is cut takes CUDA.
func TestAttemptsOnTheLedger(t *testing.T) {
	ledger := "/ledger"
	atEachLevel(t, func(t *testing.T, i int) {
		behindWall := levels[i].isolation == "wall"
		if i == 2 {
			t.Skip("as at the level before")
		}
		own := runDir("pages") + "/$SLURM_JOB_ID" + ledger
		t.Run("an older copy is put back", func(t *testing.T) {
			out := batch(t, one, fmt.Sprintf("--gres=vgpu:1 --vgpu-mem=%d", containerMiB), `exec 2>&1
				cp `+own+` older
				vgpu-fill --upto 2000 --hold-until gone > first &
				until grep -qs "after 2000 MiB" first; do sleep 0.1; done
				cp older `+own+`
				vgpu-fill --upto 2000
				touch gone; wait; rm -f gone older first`)
			if held := !strings.Contains(out, "after 2000 MiB") || strings.Contains(out, "OUT_OF_MEMORY"); held != behindWall {
				t.Errorf("held %t, want %t:\n%s", held, behindWall, out)
			}
		})
		for _, tc := range []struct{ name, config, want string }{
			{"cut", "", noCUDA},
			{"cut, where limits that fail are open", "on_limit_failure: open\n", open},
		} {
			t.Run(tc.name, func(t *testing.T) {
				configured(t, levels[i].config+tc.config)
				want := tc.want
				if behindWall && want == open {
					want = limited
				}
				if got := outcomeOf(t, "truncate -s 0 "+own+"; "+fillHere()); got != want {
					t.Errorf("%s, want %s", got, want)
				}
			})
		}
	})
}

// Ways to a GPU of others.
func TestAttemptsOnOtherGPUs(t *testing.T) {
	atEachLevel(t, func(t *testing.T, i int) {
		without := submit(t, one, "", "echo $$; while :; do sleep 1; done") // until the test ends
		t.Cleanup(func() { run(t, root, "scancel "+without) })              // before its cgroup has to go
		var pid string
		until(t, "a process of the job without a slice", 30*time.Second, func() error {
			if pid = strings.TrimSpace(output(t, one, without)); pid == "" {
				return fmt.Errorf("it is %s", state(t, without))
			}
			return nil
		})
		for _, tc := range []struct {
			name, options, door string
			want                [4]string
		}{
			{"a folder of devices to begin in", "--chdir=" + nodes(), "nvidia1", [4]string{"open", "closed", "closed", "closed"}},
			{"what his job without a slice sees", "", "/proc/" + pid + "/root" + nodes() + "/nvidia1", [4]string{"open", "open", "closed", "open"}},
		} {
			t.Run(tc.name, func(t *testing.T) {
				job := submit(t, one, onFirstGPU(t)+" --output="+one.Home+"/door.out "+tc.options, "if (exec 3<>"+tc.door+"); then echo open; else echo closed; fi")
				awaitEnd(t, job)
				found := filepath.Join(one.Home, "door.out")
				out, _ := os.ReadFile(found)
				_ = os.Remove(found)
				if lines := strings.Fields(string(out)); len(lines) == 0 || lines[len(lines)-1] != tc.want[i] {
					t.Errorf("want %s:\n%s", tc.want[i], out)
				}
			})
		}
	})
}
