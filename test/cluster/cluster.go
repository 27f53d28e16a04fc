// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/sitecheck"
)

// Options say what cluster to bring up. The zero value is one node with everything in it.
type Options struct {
	Build     string // where `make build` put its outputs
	Source    string // the checkout: the Lua scripts come from there
	NodeCount int    // 0: 1
	// DefaultNodes is how many of them the default partition has; partition "all" has all. 0: all.
	DefaultNodes int
	// Whole adds two nodes with whole GPUs beside slices, each in a partition of its own: in "whole" slurm-vgpu places
	// them, in "split" the second GPU is Slurm's.
	Whole     bool
	CPUs      int      // per node, whatever the machine has; 0: 64
	GPU       string   // auto, sim or real; "" is auto
	UserNames []string // ordinary users that exist; made when fewer than two are given
	ExtraPath string   // appended to the users' PATH
	Plain     bool     // Slurm alone, without slurm-vgpu
	// Unaccounted: without MariaDB and slurmdbd, so that nothing is reported.
	Unaccounted bool

	Isolation    string // "": strict, or preload where mount namespaces are forbidden
	OnNoFit      string // "": requeue
	MaxRequeues  int    // 0: 5
	SlicesPerGPU int    // 0: 10
	Overcommit   float64
	ExtraConfig  string // appended to config.yaml
	Prolog       string // instead of vgpu-prolog
	Epilog       string

	Progress func(text string) // told of what takes long; nil is silence
}

// Cluster is a cluster that is up.
type Cluster struct {
	Options
	Home  Home
	Name  string
	Nodes []string
	Users []User
	// Shards: it has a node on which Slurm picks the GPUs, in partition "shard". Only with Whole, and with a Slurm from
	// 23.11.5 on.
	Shards bool

	host      string
	pluginDir string
	password  string
	gres      gres
	ports     map[string]int
	held      map[string]net.Listener
	daemons   map[string]*daemon
}

// Start brings the cluster up in a folder that Enclose gave, and returns when jobs can run.
func Start(ctx context.Context, home Home, options Options) (*Cluster, error) {
	c := &Cluster{Options: options, Home: home, Name: "vgpu",
		ports: map[string]int{}, held: map[string]net.Listener{}, daemons: map[string]*daemon{}}
	c.fillDefaults()
	defer func() {
		for name := range c.held {
			c.release(name)
		}
	}()
	for _, step := range []func(context.Context) error{c.prepare, c.startServers, c.startSlurm} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *Cluster) fillDefaults() {
	c.NodeCount = max(c.NodeCount, 1)
	if c.DefaultNodes == 0 {
		c.DefaultNodes = c.NodeCount
	}
	if c.CPUs == 0 {
		c.CPUs = 64
	}
	if c.Isolation == "" {
		c.Isolation = "strict"
		if c.Home.InPlace() {
			c.Isolation = "preload"
		}
	}
	if c.OnNoFit == "" {
		c.OnNoFit = "requeue"
	}
	if c.MaxRequeues == 0 {
		c.MaxRequeues = 5
	}
	if c.SlicesPerGPU == 0 {
		c.SlicesPerGPU = 10
	}
	if c.Overcommit == 0 {
		c.Overcommit = 1
	}
	for i := range c.NodeCount {
		c.Nodes = append(c.Nodes, fmt.Sprintf("n%d", i+1))
	}
	if c.Whole {
		c.Nodes = append(c.Nodes, wholeNode, splitNode)
		if c.Shards = sitecheck.CountsShards(slurmVersion()); c.Shards {
			c.Nodes = append(c.Nodes, shardNode)
		}
	}
}

// slurmVersion is what Slurm's daemons say about themselves, without a slurm.conf: "slurm-wlm 22.05.8".
func slurmVersion() string {
	out, _ := exec.Command(tool("slurmctld"), "-V").Output() // none: whoever starts it will say so
	return sitecheck.ParseVersion(string(out))
}

func (c *Cluster) progress(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

// tool finds a program that may stand in an sbin folder that PATH lacks.
func tool(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if path := filepath.Join(dir, name); isExecutable(path) {
			return path
		}
	}
	return name
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func (c *Cluster) prepare(ctx context.Context) error {
	for _, dir := range []string{"etc", "log", "munge", "state", "spool", "run", "vgpu-spool", "home", "home/root", "bin", "lib"} {
		if err := os.MkdirAll(c.Home.Path(dir), 0o755); err != nil {
			return err
		}
	}
	if c.Home.InPlace() {
		if _, err := os.Lstat("/etc/ld.so.preload"); os.IsNotExist(err) {
			if err := os.WriteFile(c.Home.Path(preloadFile), nil, 0o644); err != nil {
				return err
			}
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	c.host, _, _ = strings.Cut(host, ".")
	if err := c.findPlugins(); err != nil {
		return err
	}
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	c.password = hex.EncodeToString(secret)
	if err := c.makeUsers(); err != nil {
		return err
	}
	if err := c.installParts(ctx); err != nil {
		return err
	}
	return c.writeSlurmFiles()
}

// findPlugins asks where this Slurm keeps its plugins.
func (c *Cluster) findPlugins() error {
	patterns := []string{"/usr/lib/*/slurm-wlm", "/usr/lib/*/slurm", "/usr/lib64/slurm", "/usr/lib/slurm"}
	for _, pattern := range patterns {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			if _, err := os.Stat(filepath.Join(dir, "select_cons_tres.so")); err == nil {
				c.pluginDir = dir
				return nil
			}
		}
	}
	return fmt.Errorf("find Slurm's plugins: select_cons_tres.so is in none of %s", strings.Join(patterns, ", "))
}

func (c *Cluster) writeSlurmFiles() error {
	type file struct {
		name, text string
		mode       os.FileMode
	}
	files := []file{
		{"slurm.conf", c.slurmConf(), 0o644},
		{"slurmdbd.conf", c.slurmdbdConf(), 0o600},
		{"gres.conf", c.gres.conf, 0o644},
		{"cgroup.conf", "CgroupPlugin=cgroup/v1\n", 0o644},
	}
	for _, f := range files {
		if err := os.WriteFile(c.Home.Path("etc", f.name), []byte(f.text), f.mode); err != nil {
			return err
		}
	}
	return nil
}

// credential finds the first of some accounts that exists; databases refuse to run as root.
func credential(names ...string) (*syscall.Credential, error) {
	for _, name := range names {
		if account, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(account.Uid, 10, 32)
			gid, _ := strconv.ParseUint(account.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, fmt.Errorf("none of the users %s exists", strings.Join(names, ", "))
}

// startServers starts munged, and mariadbd with slurmdbd's account in it, side by side.
func (c *Cluster) startServers(ctx context.Context) error {
	if c.Unaccounted {
		if err := c.startMunge(); err != nil {
			return err
		}
		return c.awaitMunge(ctx)
	}
	var wait sync.WaitGroup
	var mungeErr, dbErr error
	db := &daemon{name: "mariadb"}
	wait.Go(func() { dbErr = c.initDatabase(ctx, db) })
	mungeErr = c.startMunge()
	wait.Wait()
	if err := errors.Join(mungeErr, dbErr); err != nil {
		return err
	}
	if err := c.start(db); err != nil {
		return err
	}
	if err := c.awaitMunge(ctx); err != nil {
		return err
	}
	if err := c.await(ctx, "mariadbd", 120*time.Second, greets(c.address("mariadb")), "mariadb"); err != nil {
		return err
	}
	if err := c.start(&daemon{name: "slurmdbd", argv: []string{tool("slurmdbd"), "-D"}}); err != nil {
		return err
	}
	c.progress("slurmdbd makes its tables")
	return c.await(ctx, "slurmdbd", 120*time.Second, c.registered(ctx), "slurmdbd", "mariadb")
}

func (c *Cluster) startMunge() error {
	key := make([]byte, 1024)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	if err := os.WriteFile(c.Home.Path("munge", "key"), key, 0o400); err != nil {
		return err
	}
	return c.start(&daemon{name: "munge", argv: []string{tool("munged"), "--foreground",
		"--key-file=" + c.Home.Path("munge", "key"), "--socket=" + c.Home.Path("munge", "socket"),
		"--pid-file=" + c.Home.Path("munge", "pid"), "--log-file=" + c.Home.Path("log", "munge.log"),
		"--seed-file=" + c.Home.Path("munge", "seed")}})
}

func (c *Cluster) awaitMunge(ctx context.Context) error {
	return c.await(ctx, "munged", 60*time.Second, dial("unix", c.Home.Path("munge", "socket")), "munge")
}

func (c *Cluster) initDatabase(ctx context.Context, d *daemon) error {
	cred, err := credential("mysql", "nobody")
	if err != nil {
		return err
	}
	dir, data := c.Home.Path("db"), c.Home.Path("db", "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	for _, path := range []string{dir, data} {
		if err := os.Chown(path, int(cred.Uid), int(cred.Gid)); err != nil {
			return err
		}
	}
	// Nothing in it must outlive a crash, so nothing waits for the disk.
	common := []string{"--no-defaults", "--datadir=" + data, "--innodb-flush-method=nosync",
		"--innodb-buffer-pool-size=1G", "--innodb-log-file-size=64M", "--innodb-lock-wait-timeout=900",
		"--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--tmpdir=" + dir,
		// Slurm does not support it, and slurmdbd 26.05 ends itself over it; MariaDB 11.6.2 and later have it on. What
		// is loose is not asked of a server that does not know it.
		"--loose-innodb-snapshot-isolation=OFF"}
	account, err := user.LookupId(strconv.FormatUint(uint64(cred.Uid), 10))
	if err != nil {
		return err
	}
	install := exec.CommandContext(ctx, tool("mariadb-install-db"), append([]string{common[0], "--basedir=/usr",
		"--user=" + account.Username, "--skip-test-db", "--skip-name-resolve", "--force",
		"--auth-root-authentication-method=socket"}, common[1:]...)...)
	install.Env = c.baseEnv()
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w: %s", err, bytes.TrimSpace(out))
	}
	// slurmdbd would make the database itself, but connects a second time on the same handle then, of which
	// MariaDB's client library 3.4.10 says that an answer has more columns than the 0 that are allowed.
	sql := fmt.Sprintf("CREATE DATABASE IF NOT EXISTS slurm_acct_db;\nCREATE USER IF NOT EXISTS slurm@'127.0.0.1' IDENTIFIED BY '%s';\nGRANT ALL ON slurm_acct_db.* TO slurm@'127.0.0.1';\n", c.password)
	init := c.Home.Path("db", "init.sql")
	if err := os.WriteFile(init, []byte(sql), 0o600); err != nil {
		return err
	}
	if err := os.Chown(init, int(cred.Uid), int(cred.Gid)); err != nil {
		return err
	}
	d.cred = cred
	d.argv = append(append([]string{tool("mariadbd")}, common...), "--basedir=/usr", "--socket="+c.Home.Path("db", "socket"),
		"--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", c.port("mariadb")), "--pid-file="+c.Home.Path("db", "pid"),
		"--init-file="+init, "--skip-name-resolve", "--max-connections=50", "--log-error="+c.Home.Path("db", "log"))
	return nil
}

// dial is ready when somebody listens.
func dial(network, address string) func() error {
	return func() error {
		conn, err := net.DialTimeout(network, address, time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// greets is ready when a server that speaks first has spoken.
func greets(address string) func() error {
	return func() error {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		_, err = conn.Read(make([]byte, 5))
		return err
	}
}
