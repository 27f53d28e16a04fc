// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package privatemounts

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Copies is a script that fills the mount namespace in which it runs with copies of a folder and of what is mounted below it, half of all
// mounts that the kernel admits (fs.mount-max), and waits until a file is gone: $1 is the folder, $2 the file, which it makes.
const Copies = `mount -t tmpfs none /mnt && mkdir /mnt/0 && mount --rbind "$1" /mnt/0 || exit 1
i=0
while mkdir -p /mnt/x$i; mount --rbind /mnt /mnt/x$i; do i=$((i + 1)); done 2>/dev/null
for j in $(seq $i -1 0); do mkdir -p /mnt/y$j; mount --rbind /mnt/x$j /mnt/y$j; done 2>/dev/null
for k in $(seq 1 100); do mkdir -p /mnt/z$k; mount --rbind /mnt/0 /mnt/z$k || break; done 2>/dev/null
wc -l < /proc/self/mountinfo > "$2"
while [ -e "$2" ]; do sleep 0.1; done
`

// Copied runs it in a namespace of its own until the test ends.
func Copied(t testing.TB, folder string) {
	t.Helper()
	full := filepath.Join(t.TempDir(), "full")
	cmd := exec.Command("unshare", "--mount", "--propagation", "slave", "sh", "-c", Copies, "copies", folder, full)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = os.Remove(full)
		<-done
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if info, err := os.Stat(full); err == nil && info.Size() > 0 {
			return
		}
		select {
		case err := <-done:
			done <- err
			t.Fatalf("copies of %s: %v", folder, err)
		default:
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			t.Fatalf("copies of %s: not within a minute", folder)
		}
	}
}
