// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// mirrored pairs every struct of interposer/api/layout.h with its Go mirror.
var mirrored = map[string]reflect.Type{
	"vgpu_limits_device":  reflect.TypeFor[limitsDevice](),
	"vgpu_limits":         reflect.TypeFor[limitsPage](),
	"vgpu_ledger_slot":    reflect.TypeFor[ledgerSlot](),
	"vgpu_ledger_step":    reflect.TypeFor[ledgerStep](),
	"vgpu_ledger":         reflect.TypeFor[ledgerPage](),
	"vgpu_channel_group":  reflect.TypeFor[groupsGroup](),
	"vgpu_groups_process": reflect.TypeFor[groupsProcess](),
	"vgpu_groups":         reflect.TypeFor[groupsPage](),
	"vgpu_time_device":    reflect.TypeFor[timeDevice](),
	"vgpu_time":           reflect.TypeFor[timePage](),
}

var constants = map[string]uint64{
	"VGPU_LAYOUT_VERSION": LayoutVersion, "VGPU_VGPUD_VERSION": VgpudVersion, "VGPU_LIMITS_MAGIC": limitsMagic, "VGPU_LEDGER_MAGIC": ledgerMagic,
	"VGPU_PAGES_DIR_BYTES": pathBytes,
	"VGPU_LOCKS_AT":        locksAt,
	"VGPU_MAX_DEVICES":     MaxDevices, "VGPU_MAX_STEPS": maxSteps, "VGPU_MAX_PROCS": maxProcs, "VGPU_UUID_BYTES": uuidBytes,
	"VGPU_FAIL_OPEN": uint64(FailOpen), "VGPU_GATED": uint64(Gated),
	"VGPU_GROUPS_MAGIC": groupsMagic, "VGPU_TIME_MAGIC": timeMagic, "VGPU_MAX_GROUPS": maxGroups, "VGPU_GROUP_CHANNELS": groupChannels,
	"VGPU_TIME_FROZEN": uint64(TimeFrozen), "VGPU_TIME_UNNAMED": uint64(TimeUnnamed), "VGPU_TIME_INEXACT": uint64(TimeInexact), "VGPU_TIME_IDLE": uint64(TimeIdle),
}

// TestLayoutMatchesC asks the C compiler for the size and the place of every field, in C's order
// and by C's names: a field that is renamed, moved or missing on either side is found.
func TestLayoutMatchesC(t *testing.T) {
	header, err := filepath.Abs("../../interposer/api/layout.h")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(header)
	if err != nil {
		t.Fatal(err)
	}
	structs := regexp.MustCompile(`(?s)struct (vgpu_\w+) \{(.*?)\n\};`).FindAllStringSubmatch(string(source), -1)
	if len(structs) != len(mirrored) {
		t.Errorf("%s has %d structs, mirrored are %d", header, len(structs), len(mirrored))
	}
	comment := regexp.MustCompile(`(?s)/\*.*?\*/`)
	field := regexp.MustCompile(`(\w+)(\[\w+\])?;`)
	var program, want strings.Builder
	fmt.Fprintf(&program, "#include <stdio.h>\n#include %q\nint main(void) {\n", header)
	for name, value := range constants {
		fmt.Fprintf(&program, "printf(\"%%llu\\n\", (unsigned long long)%s);\n", name)
		fmt.Fprintf(&want, "%d\n", value)
	}
	for _, s := range structs {
		mirror, ok := mirrored[s[1]]
		if !ok {
			t.Errorf("struct %s has no mirror", s[1])
			continue
		}
		fields := flatten(mirror, 0)
		for i, f := range field.FindAllStringSubmatch(comment.ReplaceAllString(s[2], ""), -1) {
			fmt.Fprintf(&program, "printf(\"%[1]s.%[2]s %%zu %%zu\\n\", offsetof(struct %[1]s, %[2]s), sizeof(((struct %[1]s *)0)->%[2]s));\n", s[1], f[1])
			if i >= len(fields) {
				t.Errorf("%s.%s has no mirror", s[1], f[1])
				continue
			}
			if got := strings.ReplaceAll(f[1], "_", ""); !strings.EqualFold(got, fields[i].name) {
				t.Errorf("%s.%s is mirrored by %s", s[1], f[1], fields[i].name)
			}
			fmt.Fprintf(&want, "%s.%s %d %d\n", s[1], f[1], fields[i].offset, fields[i].size)
		}
		fmt.Fprintf(&program, "printf(\"%[1]s %%zu\\n\", sizeof(struct %[1]s));\n", s[1])
		fmt.Fprintf(&want, "%s %d\n", s[1], mirror.Size())
		if encoded := binary.Size(reflect.Zero(mirror).Interface()); encoded != int(mirror.Size()) {
			t.Errorf("%s is encoded in %d bytes, C has %d", s[1], encoded, mirror.Size())
		}
	}
	program.WriteString("return 0;\n}\n")
	if got := compileAndRun(t, program.String()); got != want.String() {
		t.Errorf("C says\n%s\nGo says\n%s", got, want.String())
	}
	for name, paths := range map[string][2]string{"limits": {LimitsFile, "VGPU_LIMITS_FILE"}, "ledger": {LedgerFile, "VGPU_LEDGER_FILE"}} {
		if !strings.Contains(string(source), fmt.Sprintf("#define %s %q", paths[1], paths[0])) {
			t.Errorf("the %s page has another name in C", name)
		}
	}
}

type place struct {
	name         string
	offset, size uintptr
}

// flatten lists the fields of a struct, those of an embedded one in its stead.
func flatten(s reflect.Type, base uintptr) (places []place) {
	for f := range s.Fields() {
		if f.Anonymous {
			places = append(places, flatten(f.Type, base+f.Offset)...)
			continue
		}
		places = append(places, place{f.Name, base + f.Offset, f.Type.Size()})
	}
	return places
}

func compileAndRun(t *testing.T, program string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc: the layout is compared where the interposer is built")
	}
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
