// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/test/gpu/gauge"
)

func TestParametersLieAsInTheHeaders(t *testing.T) {
	var cut preemptionParams
	if unsafe.Sizeof(interleaveParams{}) != 4 || unsafe.Sizeof(cut) != 32 || unsafe.Offsetof(cut.compute) != 12 {
		t.Errorf("interleave of %d bytes, preemption of %d with cilp at %d", unsafe.Sizeof(interleaveParams{}), unsafe.Sizeof(cut), unsafe.Offsetof(cut.compute))
	}
}

func TestTurnsAreCounted(t *testing.T) {
	turns := newTurns(0)
	for i, r := range []channels.Record{{Kind: 2, Tag: 6, PID: 7}, {Kind: 2, Tag: 7, PID: 7}, {Kind: 4}, {Kind: 134, Tag: 6, PID: 8}} {
		r.AtNS, r.Serial = int64(i)*100_000, uint16(turns.Records)
		turns.take(r)
	}
	if turns.count[7] != 1 || turns.count[8] != 1 || !slices.Equal(turns.lengthsUS[7], []int{100}) || turns.Records != 3 || turns.Lost != 0 || turns.unlooked != 1 {
		t.Errorf("%+v of %+v", turns, turns.Turns)
	}
}

const written = `group 5 3251634206 1543503874 1543503890 1
group 5 3251634206 1543503874 1543503900 9
channel 5 3251634206 1543503890 1543503900 0
channel 5 3251634206 1543503900 1543503901 0
channel 6 1 1543503890 1543503902 0
subdevice 5 3251634206 1543503999 1543503875 0
subdevice 7 3251634206 1543503874 1543503876 0
half a li`

func TestWhatComputesIsFound(t *testing.T) {
	p := newOwned(1, parseHandles(written))
	if len(p.groups) != 1 || p.groups[0].engine != 1 {
		t.Errorf("groups %v", p.groups)
	}
	if len(p.channels) != 1 || p.channels[0].object != 1543503900 {
		t.Errorf("channels %v", p.channels)
	}
	if p.subdevice.fd != 7 {
		t.Errorf("subdevice %v, want that of the groups' device", p.subdevice)
	}
	if none := newOwned(1, nil); none.off(true) != 0 || none.slice(1) != 0 {
		t.Error("a process without a group was acted on")
	}
}

// asTheDriver plays what libcuda does: objects of both sizes, one refused, one of no interest.
const asTheDriver = `#include "%s/programs/handles.c"
int main(void)
{
	uint32_t group_params[8] = {0, 0, 0, 1};
	struct alloc made = {10, 20, 30, CLASS_GROUP, (uintptr_t)group_params, {0}};
	note(3, ESCAPE_ALLOC, SHORT_ALLOC_BYTES, &made);
	note(3, ESCAPE_ALLOC + 1, SHORT_ALLOC_BYTES, &made);
	made = (struct alloc){10, 20, 31, CLASS_SUBDEVICE, 0, {0, 99}};
	note(4, ESCAPE_ALLOC, LONG_ALLOC_BYTES, &made);
	note(4, ESCAPE_ALLOC, SHORT_ALLOC_BYTES, &made);
	made = (struct alloc){10, 30, 32, 0xc86f, 0, {0, 0, 0, 0, 1}};
	note(4, ESCAPE_ALLOC, LONG_ALLOC_BYTES, &made);
	made.rest[4] = 0;
	note(4, ESCAPE_ALLOC, LONG_ALLOC_BYTES, &made);
	made.class = 0x41;
	note(4, ESCAPE_ALLOC, LONG_ALLOC_BYTES, &made);
	return 0;
}
`

func TestHandlesAreWrittenDown(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	source, program, file := filepath.Join(t.TempDir(), "main.c"), filepath.Join(t.TempDir(), "main"), filepath.Join(t.TempDir(), "handles")
	if err := os.WriteFile(source, fmt.Appendf(nil, asTheDriver, here), 0o644); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command("cc", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", source, "-o", program, "-pthread").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	run := exec.Command(program)
	run.Env = append(os.Environ(), "HANDLES_FILE="+file)
	if said, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	want := []handle{{"group", 3, 10, 20, 30, 1}, {"subdevice", 4, 10, 20, 31, 0}, {"channel", 4, 10, 30, 32, 0}}
	if got := readHandles(file); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A board's places stand in three programs.
func TestBoardsAreTheSame(t *testing.T) {
	for name, says := range map[string][]string{
		"programs/tenant.cu":   {"LATENCIES_AT = %d", "MOST_LATENCIES = %d", "BOARD_BYTES = 1 << 20"},
		"../../simgpu/board.c": {"LATENCIES_AT %d", "MOST_LATENCIES %d", "BOARD_BYTES (1u << 20)"},
	} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		places(t, name, string(text), fmt.Sprintf(says[0], gauge.Latencies), fmt.Sprintf(says[1], gauge.MostLatency), says[2])
	}
	if gauge.BoardBytes != 1<<20 || gauge.Done+8*gauge.MostContexts > gauge.Requests || gauge.Latencies+4*gauge.MostLatency > gauge.BoardBytes {
		t.Error("the places overlap")
	}
}

func places(t *testing.T, file, text string, says ...string) {
	t.Helper()
	for name, at := range map[string]int{"READY": gauge.Ready, "GO": gauge.Go, "STOP": gauge.Stop, "KERNEL_MS": gauge.KernelMS, "LOOPS": gauge.Loops, "DONE": gauge.Done, "REQUESTS": gauge.Requests, "PID": gauge.PID} {
		if want := fmt.Sprintf("%s = %d", name, at/8); at%8 != 0 || !regexp.MustCompile(`\b`+want+`\b`).MatchString(text) {
			t.Errorf("%s has no %s", file, want)
		}
	}
	for _, want := range says {
		if !strings.Contains(text, want) {
			t.Errorf("%s has no %s", file, want)
		}
	}
}

func TestPartsAreChosenByName(t *testing.T) {
	found, err := chosen([]string{"follow", "smoke"})
	if err != nil || len(found) != 2 || found[0].name != "follow" || found[1].name != "smoke" {
		t.Errorf("%v %v", found, err)
	}
	if _, err := chosen([]string{"smoke", "smoky"}); err == nil {
		t.Error("a part that is not there was found")
	}
}

// Each section of the decision names the parts that measure it again.
func TestTheDecisionNamesThePart(t *testing.T) {
	text, err := os.ReadFile("../../../docs/verified/time-from-outside.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]int{}
	for _, section := range regexp.MustCompile(`(?ms)^## (\d+)\. .*?(?:^## |\z)`).FindAllStringSubmatch(strings.ReplaceAll(string(text), "\n## ", "\n## \n## "), -1) {
		number, _ := strconv.Atoi(section[1])
		for _, command := range regexp.MustCompile("`test/gpu/time.sh ([a-z ]+)`").FindAllStringSubmatch(section[0], -1) {
			for name := range strings.FieldsSeq(command[1]) {
				named[name] = number
			}
		}
	}
	for _, p := range parts {
		if named[p.name] != p.section {
			t.Errorf("part %s is named in section %d, not in %d", p.name, named[p.name], p.section)
		}
		delete(named, p.name)
	}
	for name := range named {
		t.Errorf("there is no part %s", name)
	}
}
