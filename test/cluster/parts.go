// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// jobPrograms are those of test/simgpu that jobs run on real GPUs as well.
var jobPrograms = []string{"vgpu-fill", "vgpu-busy"}

// LaunchPart is the plugin's part in Go, in what these sources are built to.
func LaunchPart(source string) (string, error) {
	number, err := os.ReadFile(filepath.Join(source, "VERSION"))
	return "spank_vgpu_launch-" + strings.TrimSpace(string(number)) + ".so", err
}

// installParts copies what was built to where the cluster's users can read it (a checkout may be
// closed to them) and writes slurm-vgpu's configuration, as an administrator would.
func (c *Cluster) installParts(ctx context.Context) error {
	if c.Plain {
		c.gres = plainGres
		return nil
	}
	if err := c.findGPUs(ctx); err != nil {
		return err
	}
	h := c.Home
	if c.gres.simulated {
		if err := c.installSimulation(); err != nil {
			return err
		}
	}
	// Found in PATH by jobs. On a simulated node it stands beside the libraries that it is to find,
	// on a real one apart from them.
	if !c.gres.simulated {
		for _, program := range jobPrograms {
			if err := copyProgram(filepath.Join(c.Build, "sim", program), h.Path("bin", program)); err != nil {
				return err
			}
		}
	}
	plugin, err := c.installPrograms()
	if err != nil {
		return err
	}
	plugstack := fmt.Sprintf("required %s run_dir=%s\n", plugin, h.Path("run", "%n"))
	if err := os.WriteFile(h.Path("etc", "plugstack.conf"), []byte(plugstack), 0o644); err != nil {
		return err
	}
	if err := c.WriteConfig(); err != nil {
		return err
	}
	for name, target := range map[string]*string{"prolog": &c.Prolog, "epilog": &c.Epilog} {
		if *target != "" {
			continue
		}
		*target = h.Path("etc", name)
		if err := os.WriteFile(*target, []byte(c.wrapper("vgpu-"+name)), 0o755); err != nil {
			return err
		}
	}
	if err := c.installLua(); err != nil {
		return err
	}
	return c.askNodes(ctx)
}

// installPrograms copies what was built, unless what is installed is to be tried, and returns where the plugin is.
func (c *Cluster) installPrograms() (plugin string, err error) {
	if c.Installed() {
		return filepath.Join(c.pluginDir, "spank_vgpu.so"), nil
	}
	launch, err := LaunchPart(c.Source)
	if err != nil {
		return "", err
	}
	for _, name := range []string{"vgpu-prolog", "vgpu-epilog", "vgpu-gres", "vgpuctl", "vgpu-exporter", "vgpu-draw", "vgpud",
		"libslurm-vgpu.so", "libcuda-guard.so", "libnvidia-ml-guard.so", "libslurm-vgpu-closed.so", "spank_vgpu.so", launch} {
		if err := copyProgram(filepath.Join(c.Build, name), c.Home.Program(name)); err != nil {
			return "", err
		}
	}
	return c.Home.Program("spank_vgpu.so"), nil
}

// Installed says that it runs the programs that are installed below VGPU_CLUSTER_PREFIX, and none of the build's but those of tests.
func (c *Cluster) Installed() bool { return installed != "" }

// askNodes lets vgpu-gres find the GPUs and print the lines about them, as on a real node at boot.
func (c *Cluster) askNodes(ctx context.Context) error {
	var gresConf, table strings.Builder
	c.gres.counts = map[string]string{}
	for _, node := range c.Nodes {
		ask := func(command string) (string, error) {
			if node != shardNode && command != "inventory --write" {
				command += " --counts"
			}
			line := fmt.Sprintf("vgpu-gres --config %s --node %s %s", c.ConfigOf(node), node, command)
			result := c.Run(ctx, c.Root(), line)
			if result.Code != 0 {
				return "", errors.New(result.String())
			}
			return result.Stdout, nil
		}
		if _, err := ask("inventory --write"); err != nil {
			return err
		}
		lines, err := ask("gres.conf")
		if err != nil {
			return err
		}
		gresConf.WriteString(lines)
		if lines, err = ask("slurm.conf"); err != nil {
			return err
		}
		match := nodeGres.FindStringSubmatch(lines)
		if match == nil {
			return fmt.Errorf("no line NodeName=… Gres=… in what vgpu-gres slurm.conf says:\n%s", lines)
		}
		c.gres.counts[node] = match[1]
		if node == splitNode { // an administrator's own line
			gresConf.WriteString("NodeName=" + node + " Name=gpu File=" + filepath.Join(c.gres.deviceDir, "nvidia1") + " Flags=nvidia_gpu_env\n")
			c.gres.counts[node] += ",gpu:1"
		}
		if table.Len() == 0 {
			if lines, err = ask("cluster.lua"); err != nil {
				return err
			}
			// One entry for nodes that are all alike.
			names := fmt.Sprintf("%q", fmt.Sprintf("n[1-%d]", c.NodeCount))
			if c.NodeCount > 1 {
				lines = strings.Replace(lines, fmt.Sprintf("%q", node), names, 1)
			}
			table.WriteString(lines)
		}
	}
	c.gres.conf = "AutoDetect=off\n" + gresConf.String()
	return os.WriteFile(c.Home.Path("etc", "cluster.lua"), []byte(table.String()), 0o644)
}

var nodeGres = regexp.MustCompile(`(?m)^#NodeName=\S+ Gres=(\S+)`)

func copyProgram(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("%w (did `make build` succeed?)", err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return fmt.Errorf("copy %s to %s: %w", from, to, err)
	}
	return out.Close()
}

// installSimulation puts the simulated driver where a job finds it without any variable: programs
// linked against it look beside themselves.
func (c *Cluster) installSimulation() error {
	sim := c.Home.Path("sim")
	if err := os.MkdirAll(sim, 0o755); err != nil {
		return err
	}
	files, err := os.ReadDir(filepath.Join(c.Build, "sim"))
	if err != nil {
		return fmt.Errorf("%w (did `make build` succeed?)", err)
	}
	for _, file := range files {
		if !file.Type().IsRegular() {
			continue
		}
		if err := copyProgram(filepath.Join(c.Build, "sim", file.Name()), filepath.Join(sim, file.Name())); err != nil {
			return err
		}
	}
	c.gres.deviceDir = filepath.Join(sim, "simgpu.d")
	args := []string{c.gres.deviceDir, fmt.Sprintf("devices=%d", len(simulatedMiB)), "name=NVIDIA H200"}
	for i, mib := range simulatedMiB {
		args = append(args, fmt.Sprintf("device%d.mem_mib=%d", i, mib))
	}
	if out, err := exec.Command(filepath.Join(sim, "simgpu-init"), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("simgpu-init: %w: %s", err, out)
	}
	if err := c.numberDevices(); err != nil {
		return err
	}
	c.gres.nvmlLibrary = filepath.Join(sim, "libnvidia-ml.so.1")
	for _, program := range append([]string{"nvidia-smi", "vgpu-cheat"}, jobPrograms...) {
		if err := os.Symlink(filepath.Join(sim, program), c.Home.Path("bin", program)); err != nil {
			return err
		}
	}
	if c.Home.InPlace() {
		return nil
	}
	// Behind a guard the driver does not find its folder beside itself.
	if err := os.WriteFile("/etc/simgpu", []byte(c.gres.deviceDir+"\n"), 0o644); err != nil {
		return err
	}
	// A driver is where the dynamic linker finds it; the cache is in the cluster's own /etc.
	conf := "/etc/ld.so.conf.d/000-simgpu.conf"
	if err := os.WriteFile(conf, []byte(sim+"\n"), 0o644); err != nil {
		return err
	}
	if out, err := exec.Command(tool("ldconfig"), "-X").CombinedOutput(); err != nil {
		return fmt.Errorf("ldconfig: %w: %s", err, out)
	}
	return nil
}

// wholeSwitch is the line about whole GPUs in job_submit.lua.
func (c *Cluster) wholeSwitch() string {
	if !c.Whole {
		return `vgpu.whole_gpus = "refuse" --`
	}
	return `local not_counted = { split = true, shard = true }
vgpu.whole_gpus = function(job) return job.partition == "vgpu" and "refuse" or not not_counted[job.partition] end --`
}

// installLua puts the scripts beside slurm.conf, where Slurm looks, with the paths in them changed
// to this cluster's: the lines that an administrator would change.
func (c *Cluster) installLua() error {
	from, share := filepath.Join(c.Source, "gres"), c.Home.prefixed("share", "slurm-vgpu")
	if c.Installed() {
		from = share
	}
	paths := strings.NewReplacer("/usr/share/slurm-vgpu/", share+"/",
		"/etc/slurm-vgpu/cluster.lua", c.Home.Path("etc", "cluster.lua"), "vgpu.whole_gpus = nil --", c.wholeSwitch(), "vgpu.shards = nil --", `vgpu.shards = function(job) return job.partition == "shard" end --`)
	if err := os.MkdirAll(share, 0o755); err != nil {
		return err
	}
	scripts, _ := filepath.Glob(filepath.Join(from, "*.lua"))
	if len(scripts) == 0 {
		return fmt.Errorf("no Lua scripts in %s", from)
	}
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			return err
		}
		name := filepath.Base(script)
		to := filepath.Join(share, name)
		if name == "job_submit.lua" || name == "cli_filter.lua" {
			to = c.Home.Path("etc", name)
		} else if to == script {
			continue
		}
		if err := os.WriteFile(to, []byte(paths.Replace(string(text))), 0o644); err != nil {
			return err
		}
	}
	return nil
}
