// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package devfiles

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"time"
)

// askTime bounds a directory that does not answer: a prolog waits for it.
const askTime = 10 * time.Second

// notFound is what getent exits with when there is none, by getent(1).
const notFound = 2

// getent asks whatever the site has its groups in.
var getent = "/usr/bin/getent"

// lookUp finds a group by its number, in /etc/group, or through getent. A program that is linked without the C library, as the
// prolog is, looks nowhere but in /etc/group by itself.
func lookUp(group string) (uint32, error) {
	if group == "" {
		return 0, nil
	}
	if gid, err := strconv.ParseUint(group, 10, 32); err == nil {
		return uint32(gid), nil
	}
	var number string
	if found, err := user.LookupGroup(group); err == nil {
		number = found.Gid
	} else if number, err = ask(group); err != nil {
		return 0, fmt.Errorf("group of the device files: %w", err)
	}
	gid, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("group of the device files: %s has the number %q", group, number)
	}
	return uint32(gid), nil
}

// ask has the C library of another program look: NAME:x:GID:MEMBERS.
func ask(group string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, getent, "--", "group", group)
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, "/", time.Second
	said, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == notFound {
		return "", fmt.Errorf("there is no group %s", group)
	}
	if err != nil {
		return "", fmt.Errorf("look up %s: %w", group, err)
	}
	line, _, _ := strings.Cut(string(said), "\n")
	if cells := strings.Split(line, ":"); len(cells) == 4 && cells[0] == group {
		return cells[2], nil
	}
	return "", fmt.Errorf("look up %s: getent says %.100q", group, line)
}
