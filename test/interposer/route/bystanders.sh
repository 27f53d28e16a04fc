#!/bin/sh
# SPDX-FileCopyrightText: The slurm-vgpu authors
# SPDX-License-Identifier: Apache-2.0
#
# Programs that have nothing to do with CUDA are the same with and without the library.
#   bystanders.sh LIBRARY
set -u
library=$1
passed=0
failed=0

check() {
	name=$1
	shift
	if ! command -v "$1" >/dev/null 2>&1; then
		echo "SKIP $name: no $1 here"
		return
	fi
	plain=$("$@" 2>&1 </dev/null)
	plain_status=$?
	loaded=$(LD_PRELOAD=$library "$@" 2>&1 </dev/null)
	loaded_status=$?
	if [ "$plain" = "$loaded" ] && [ $plain_status -eq $loaded_status ]; then
		passed=$((passed + 1))
		echo "PASS $name"
	else
		failed=$((failed + 1))
		echo "FAIL $name: status $plain_status and $loaded_status, output: $loaded"
	fi
}

check bash_is_unchanged bash -c 'trap "echo term" TERM; kill -TERM $$; echo ${BASH_VERSION} $(echo nested) | cat; exit 3'
check perl_is_unchanged perl -e 'use POSIX; use List::Util "sum"; print sum(1..10), " ", POSIX::floor(2.5), "\n"; fork; wait; exit 5'
# The interpreter itself: a version manager's script in front of it would be all that is tested.
python=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null || echo python3)
check python_is_unchanged "$python" -c 'import ctypes, hashlib, subprocess, threading, multiprocessing.dummy as m; c = ctypes.CDLL(None); print(c.getpagesize(), hashlib.sha256(b"x").hexdigest(), subprocess.check_output(["echo", "hi"]), m.Pool(4).map(abs, [-1, 2]), hasattr(c, "cuInit"), hasattr(c, "nvmlInit_v2"))'
check java_is_unchanged java -version
check node_is_unchanged node -e 'const c = require("child_process"), k = require("crypto"); console.log(k.createHash("sha256").update("x").digest("hex"), c.execSync("echo hi").toString(), [3, 1, 2].sort()); process.on("SIGUSR1", () => process.exit(4)); process.kill(process.pid, "SIGUSR1"); setTimeout(() => {}, 5000)'
# The C library in its process makes a Go program one that the library is loaded into.
go=${GO:-go}
work=$(mktemp -d)
cat >"$work/main.go" <<'GO'
package main

// #include <stdlib.h>
// #include <dlfcn.h>
// static int answer(void) { return dlsym(RTLD_DEFAULT, "cuInit") != 0; }
import "C"

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync"
)

func main() {
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() { C.free(C.malloc(10)); runtime.GC() })
	}
	wait.Wait()
	out, err := exec.Command("echo", "hi").Output()
	fmt.Println(C.answer(), string(out), err)
}
GO
if command -v "$go" >/dev/null 2>&1 && (cd "$work" && GOFLAGS= CGO_ENABLED=1 "$go" build -o cgo main.go) >"$work/log" 2>&1; then
	check go_is_unchanged "$work/cgo"
else
	echo "SKIP go_is_unchanged: no program with cgo can be built here: $(tail -n 1 "$work/log" 2>/dev/null)"
fi
rm -rf "$work"

# Another C library cannot load this one. Its linker says which library, and what is missing.
if musl=$(ls /lib/ld-musl-*.so.1 2>/dev/null) && [ -n "$musl" ]; then
	said=$(LD_PRELOAD=$library "$musl" /bin/true 2>&1 </dev/null)
	case $said in
	*"$library"*)
		passed=$((passed + 1))
		echo "PASS musl_says_what_it_cannot_load"
		;;
	*)
		failed=$((failed + 1))
		echo "FAIL musl_says_what_it_cannot_load: $said"
		;;
	esac
else
	echo "SKIP musl_says_what_it_cannot_load: no musl here"
fi
check env_is_unchanged env -i /bin/echo hello
check many_processes_are_unchanged sh -c 'for i in 1 2 3 4 5 6 7 8; do (echo $i | sed s/./x/) & done; wait; ls /proc/self/fd | wc -l'

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
