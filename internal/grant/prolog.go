// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// PrologCommand is how slurmd starts vgpu-prolog on this node. vgpu-prolog leaves it in prolog.json,
// for the plugin to start it again where slurmd did not: Slurm 22.05.8 now and then starts the
// batch step of a requeued job without its prolog.
type PrologCommand struct {
	Argv []string `json:"argv"`
	Env  []string `json:"env"` // what slurmd's environment says about the cluster and the node
}

const maxPrologBytes = 64 << 10

// Words that vgpu-prolog writes to its standard output when it could not write to the run directory. A
// step that runs the prolog reads them; slurmd does not.
const (
	saysNone    = "vgpu-prolog: no slices\n"
	saysRefused = "vgpu-prolog: refused: "
)

// SayNone says that the job has no vgpu.
func SayNone(out io.Writer) { fmt.Fprint(out, saysNone) }

// SayRefused says why the job gets nothing.
func SayRefused(out io.Writer, reason string) {
	fmt.Fprintln(out, saysRefused+strings.ReplaceAll(reason, "\n", "; "))
}

// Said reads what SayNone and SayRefused wrote: that the job has no vgpu, or a refusal, or neither.
func Said(out string) (none bool, refusal string) {
	if out == saysNone {
		return true, ""
	}
	refusal, _ = strings.CutPrefix(out, saysRefused)
	if refusal == out {
		return false, ""
	}
	return false, strings.TrimSuffix(refusal, "\n")
}

// WriteProlog keeps the command line, unless it stands there already.
func WriteProlog(path string, command PrologCommand) error {
	data, err := json.Marshal(command)
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if old, err := trusted.ReadFile(path, maxPrologBytes); err == nil && bytes.Equal(old, data) {
		return nil
	}
	return trusted.WriteFile(path, data, 0o644)
}

// ReadProlog returns the command line. Root is about to run it, so the program, too, must be one
// that only root can change. No prolog has run on this node: fs.ErrNotExist.
func ReadProlog(path string) (PrologCommand, error) {
	data, err := trusted.ReadFile(path, maxPrologBytes)
	if err != nil {
		return PrologCommand{}, err
	}
	var command PrologCommand
	if err := json.Unmarshal(data, &command); err != nil {
		return PrologCommand{}, fmt.Errorf("read %s: %w", path, err)
	}
	if len(command.Argv) == 0 || !filepath.IsAbs(command.Argv[0]) {
		return PrologCommand{}, fmt.Errorf("read %s: it has no program's absolute path", path)
	}
	if err := TrustProgram(command.Argv[0]); err != nil {
		return PrologCommand{}, err
	}
	return command, nil
}

// TrustProgram refuses a program that another than root can change.
func TrustProgram(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		// Another error than a missing prolog.json.
		return errors.New((&os.PathError{Op: "stat", Path: path, Err: err}).Error())
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o022 != 0 || st.Uid != 0 && st.Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("run %s: %w", path, trusted.ErrUntrusted)
	}
	return nil
}
