// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// listenIn binds a socket as slurmstepd would.
func listenIn(t *testing.T, folder, name string) *net.UnixListener {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return listener.(*net.UnixListener)
}

// leave leaves what a killed slurmstepd leaves: the file without a listener.
func leave(t *testing.T, folder, name string) {
	t.Helper()
	dead := listenIn(t, folder, name)
	dead.SetUnlinkOnClose(false)
	dead.Close()
}

func TestLiveJobs(t *testing.T) {
	spool := t.TempDir()
	for _, name := range []string{"n1_12.4294967292", "n1_12.0", "n1_13.4294967291", "n10_14.0", "n1_x.0", "other"} {
		defer listenIn(t, spool, name).Close()
	}
	leave(t, spool, "n1_99.0")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(spool, link); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{spool, spool + "/", link} {
		live, err := LiveJobs(folder, "n1")
		if err != nil {
			t.Fatal(err)
		}
		if len(live) != 2 || !live[12] || !live[13] {
			t.Errorf("%s: got %v", folder, live)
		}
	}
}

// slurmd's user may be another than root; a socket of anybody else is not slurmstepd's.
func TestLiveJobsAreThoseOfSlurmdsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	spool := t.TempDir()
	if err := os.Chown(spool, 1, 1); err != nil {
		t.Fatal(err)
	}
	for job, uid := range map[string]int{"20": 1, "21": 2, "22": 0} {
		defer listenIn(t, spool, "n1_"+job+".0").Close()
		if err := os.Chown(filepath.Join(spool, "n1_"+job+".0"), uid, 0); err != nil {
			t.Fatal(err)
		}
	}
	if live, err := LiveJobs(spool, "n1"); err != nil || len(live) != 2 || !live[20] || !live[22] {
		t.Errorf("got %v, %v", live, err)
	}
}

func TestBoundFileIsFoundAmongOtherAttributes(t *testing.T) {
	attribute := func(length, kind uint16, value ...byte) []byte {
		head := binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, length), kind)
		return append(append(head, value...), make([]byte, -len(value)&3)...)
	}
	vfs := attribute(12, unixDiagVFS, binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, 7), 9)...)
	head := make([]byte, unixDiagMessage)
	for name, tc := range map[string]struct {
		message []byte
		found   bool
	}{
		"alone":              {slices.Concat(head, vfs), true},
		"after an empty one": {slices.Concat(head, attribute(4, 5), vfs), true},
		"after one of a bit": {slices.Concat(head, attribute(5, 5, 1), vfs), true},
		"none":               {head, false},
		"another kind":       {slices.Concat(head, attribute(12, 5, make([]byte, 8)...)), false},
		"cut":                {slices.Concat(head, vfs[:8]), false},
		"cut in its head":    {slices.Concat(head, vfs[:3]), false},
		"too short":          {slices.Concat(head, attribute(8, unixDiagVFS, make([]byte, 4)...)), false},
		"no length":          {slices.Concat(head, attribute(3, 5), vfs), false},
	} {
		file, ok := boundFile(tc.message)
		if ok != tc.found || ok && file != (boundTo{7, 9}) {
			t.Errorf("%s: %+v, %v", name, file, ok)
		}
	}
}

// forgeEnv names, to a copy of this program, the spool folder whose sockets it is to imitate.
const forgeEnv = "VGPU_TEST_FORGE"

// TestForge is no test: it is the process of a user who wants jobs to look alive.
func TestForge(t *testing.T) {
	spool := os.Getenv(forgeEnv)
	if spool == "" {
		t.Skip("it runs as a process of TestLiveJobsCannotBeForged")
	}
	socket := func(name string) {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrUnix{Name: name})
		}
		if err == nil {
			err = unix.Listen(fd, 1)
		}
		fmt.Printf("forged %q: %v\n", name, err)
	}
	socket("@" + spool + "/n1_99.0") // abstract
	socket("@x\n0000000000000000: 00000002 00000000 00010000 0001 01 12345 " + spool + "/n1_99.0")
	if err := os.MkdirAll("."+spool, 0o755); err == nil {
		socket("." + spool + "/n1_99.0") // "./" is in the name
	}
	// The very path, in a namespace of one's own.
	if err := unix.Mount("tmpfs", spool, "tmpfs", 0, "mode=755"); err == nil {
		socket(spool + "/n1_99.0")
	} else {
		fmt.Println("not forged by a mount:", err)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// A dead job whose slurmstepd left its file, so that the path is there, must not be kept alive by a
// user's process.
func TestLiveJobsCannotBeForged(t *testing.T) {
	spool, err := os.MkdirTemp("/tmp", "spool") // short: a forged line must fit into a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(spool) })
	own := t.TempDir()
	leave(t, spool, "n1_99.0")
	attr := &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		const nobody = 65534
		attr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		for dir := own; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chown(own, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(spool, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, flags := range []uintptr{0, unix.CLONE_NEWUSER | unix.CLONE_NEWNS} {
		t.Run(fmt.Sprintf("namespaces %#x", flags), func(t *testing.T) {
			forge(t, spool, own, attr, flags)
			live, err := LiveJobs(spool, "n1")
			if err != nil || len(live) != 0 {
				t.Errorf("got %v and %v, want nobody alive", live, err)
			}
		})
	}
}

// forge starts the user's process, in a user namespace of its own if flags say so, until the test ends.
func forge(t *testing.T, spool, own string, attr *syscall.SysProcAttr, flags uintptr) {
	t.Helper()
	program := filepath.Join(own, "forge")
	binary, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	argv := []string{program, "-test.run=^TestForge$", "-test.v"}
	if flags != 0 { // by its program: Go maps no ids for a process with credentials
		argv = append([]string{"/usr/bin/unshare", "-r", "-m"}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.SysProcAttr = own, attr
	cmd.Env = append(os.Environ(), forgeEnv+"="+spool)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
		os.RemoveAll(filepath.Join(own, spool))
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		t.Log(lines.Text())
		if strings.HasPrefix(lines.Text(), "ready") {
			return
		}
	}
	if flags == 0 {
		t.Fatal("the process did not get ready")
	}
	t.Skip("user namespaces are forbidden here, to root as well")
}
