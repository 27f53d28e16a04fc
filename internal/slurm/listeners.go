// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Numbers of sock_diag(7) that package unix does not have.
const (
	sockDiagByFamily = 20
	unixDiagRequest  = 24 // bytes of struct unix_diag_req
	unixDiagMessage  = 16 // bytes of struct unix_diag_msg
	unixDiagVFS      = 1  // the attribute: struct unix_diag_vfs
	showVFS          = 2
	stateListen      = 10
)

// boundTo is the file that a socket is bound to, as the kernel counts: 32 bits of the inode, and its
// own form of the device.
type boundTo struct{ inode, device uint32 }

// listeners asks the kernel on which files somebody listens, in this network namespace.
func listeners() (map[boundTo]bool, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, os.NewSyscallError("ask for listening sockets", err)
	}
	defer unix.Close(fd)
	timeout := unix.Timeval{Sec: 5} // the kernel answers at once; a prolog must not hang if it does not
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return nil, os.NewSyscallError("ask for listening sockets", err)
	}
	order := binary.NativeEndian
	request := make([]byte, unix.NLMSG_HDRLEN+unixDiagRequest)
	order.PutUint32(request[0:], uint32(len(request)))
	order.PutUint16(request[4:], sockDiagByFamily)
	order.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	body := request[unix.NLMSG_HDRLEN:]
	body[0] = unix.AF_UNIX
	order.PutUint32(body[4:], 1<<stateListen)
	order.PutUint32(body[12:], showVFS)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("ask for listening sockets", err)
	}
	found := make(map[boundTo]bool)
	answer := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, answer, 0)
		if err != nil {
			return nil, os.NewSyscallError("ask for listening sockets", err)
		}
		if done, err := readListeners(answer[:n], found); err != nil || done {
			return found, err
		}
	}
}

// readListeners takes one datagram of the answer; done says that it was the last.
func readListeners(data []byte, found map[boundTo]bool) (done bool, err error) {
	order := binary.NativeEndian
	for len(data) >= unix.NLMSG_HDRLEN {
		length := int(order.Uint32(data))
		if length < unix.NLMSG_HDRLEN || length > len(data) {
			break
		}
		message := data[unix.NLMSG_HDRLEN:length]
		switch order.Uint16(data[4:]) {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(message) < 4 {
				return true, fmt.Errorf("ask for listening sockets: an error without a number")
			}
			return true, os.NewSyscallError("ask for listening sockets", unix.Errno(-int32(order.Uint32(message))))
		case sockDiagByFamily:
			if file, ok := boundFile(message); ok {
				found[file] = true
			}
		}
		data = data[min((length+3)&^3, len(data)):]
	}
	return false, nil
}

// boundFile finds the file among a socket's attributes; an abstract socket has none.
func boundFile(message []byte) (boundTo, bool) {
	order := binary.NativeEndian
	for at := unixDiagMessage; at+4 <= len(message); {
		length := int(order.Uint16(message[at:]))
		if length < 4 || at+length > len(message) {
			break
		}
		if value := message[at+4 : at+length]; order.Uint16(message[at+2:]) == unixDiagVFS && len(value) >= 8 {
			return boundTo{order.Uint32(value), order.Uint32(value[4:])}, true
		}
		at += (length + 3) &^ 3
	}
	return boundTo{}, false
}

// ownerAndDevice says whose the folder is (root's, or SlurmdUser's), and on which device the kernel
// has it. That is not always what stat says: on btrfs each subvolume shows a number of its own.
func ownerAndDevice(folder string) (owner, device uint32, err error) {
	file, err := os.Open(folder)
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return 0, 0, &os.PathError{Op: "stat", Path: folder, Err: err}
	}
	about, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", file.Fd()))
	if err != nil {
		return 0, 0, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return 0, 0, err
	}
	for field := range strings.Lines(string(about)) {
		id, ok := strings.CutPrefix(field, "mnt_id:")
		if !ok {
			continue
		}
		for line := range strings.Lines(string(mounts)) { // id, parent, device: proc_pid_mountinfo(5)
			var major, minor uint32
			if rest, ok := strings.CutPrefix(line, strings.TrimSpace(id)+" "); ok {
				if _, err := fmt.Sscanf(rest, "%s %d:%d", new(string), &major, &minor); err == nil {
					return st.Uid, major<<20 | minor, nil
				}
			}
		}
	}
	return 0, 0, fmt.Errorf("%s is on no mount that is seen from here", folder)
}
