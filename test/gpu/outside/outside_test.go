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
)

func TestParametersLieAsInTheHeaders(t *testing.T) {
	var cut preemptionParams
	if unsafe.Sizeof(interleaveParams{}) != 4 || unsafe.Sizeof(cut) != 32 || unsafe.Offsetof(cut.compute) != 12 {
		t.Errorf("interleave of %d bytes, preemption of %d with cilp at %d", unsafe.Sizeof(interleaveParams{}), unsafe.Sizeof(cut), unsafe.Offsetof(cut.compute))
	}
}

func TestTurnsAreAddedUp(t *testing.T) {
	const us = 1000
	const tagSaveEnd, tagStart, tagSimpleStart, tagSimpleEnd = 3, 5, 6, 7 // cl90cdfecs.h
	turns := newTurns()
	turns.beganNS = 100 * us
	serial := uint16(0xfffd) // it wraps
	take := func(tag uint8, pid uint32, atUS int64) {
		serial++
		turns.take(channels.Record{Kind: 2, Tag: tag, Serial: serial, PID: pid, AtNS: atUS * us})
	}
	take(tagSimpleEnd, 7, 150) // was on when the log was opened
	take(tagSimpleStart, 8, 160)
	take(tagSimpleEnd, 9, 460) // of a context that is gone: whoever is on ends
	take(tagSimpleStart, 7, 500)
	take(tagSimpleStart, 8, 600) // nobody ended
	turns.take(channels.Record{Kind: 4})
	serial += 3
	take(tagSaveEnd, 8, 700)
	take(tagStart, 7, 800)

	if got, want := turns.residentNS, map[uint32]int64{7: 150 * us, 8: 400 * us}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("resident %v, want %v", got, want)
	}
	if got := turns.lengthsUS[8]; !slices.Equal(got, []int{300, 100}) {
		t.Errorf("turns of %v us", got)
	}
	if turns.count[7] != 2 || turns.count[8] != 2 || turns.records != 7 || turns.lost != 3 || turns.unlooked != 2 {
		t.Errorf("%d and %d turns, %d records, %d lost, %d unlooked", turns.count[7], turns.count[8], turns.records, turns.lost, turns.unlooked)
	}
	// The look comes first, and then an end that is older.
	before := turns.total(900 * us)[7]
	take(tagSimpleEnd, 7, 880)
	after := turns.total(910 * us)[7]
	if before != 250*us || after-before != -20*us {
		t.Errorf("%d ns, and then %d more", before, after-before)
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

// A board's places stand in two languages.
func TestBoardsAreTheSame(t *testing.T) {
	text, err := os.ReadFile("programs/tenant.cu")
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]int{"READY": atReady, "GO": atGo, "STOP": atStop, "KERNEL_MS": atKernelMS, "DONE": atDone, "REQUESTS": atRequests, "PID": atPID} {
		if want := fmt.Sprintf("%s = %d", name, at/8); at%8 != 0 || !regexp.MustCompile(`\b`+want+`\b`).Match(text) {
			t.Errorf("tenant.cu has no %s", want)
		}
	}
	for _, want := range []string{fmt.Sprintf("LATENCIES_AT = %d", atLatencies), fmt.Sprintf("MOST_LATENCIES = %d", mostLatency), "BOARD_BYTES = 1 << 20"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("tenant.cu has no %s", want)
		}
	}
	if boardBytes != 1<<20 || atDone+8*mostContexts > atRequests || atLatencies+4*mostLatency > boardBytes {
		t.Error("the places overlap")
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
	text, err := os.ReadFile("../../../docs/decisions/053-time-from-outside-measured.md")
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
