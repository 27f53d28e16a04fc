// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// What one connection may take. Anybody who reaches the port may open one.
const (
	maxRequestBytes = 8 << 10
	maxHeaders      = 64
	requestTime     = 5 * time.Second // for all of the request, however slowly it drips
	answerTime      = 10 * time.Second
	closeTime       = time.Second
)

// Serve answers one request on a connection and closes it. text is made only for who has asked for it.
func Serve(conn net.Conn, text func() ([]byte, error)) error {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(requestTime)); err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	head, err := readHead(conn)
	if err != nil {
		if errors.Is(err, errLarge) {
			_ = answer(conn, http.StatusRequestHeaderFieldsTooLarge, []byte(err.Error()+"\n"), false) // he may have gone
		}
		return fmt.Errorf("serve metrics: %w", err)
	}
	request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err != nil {
		_ = answer(conn, http.StatusBadRequest, []byte("this is no request of HTTP/1\n"), false) // he may have gone
		return fmt.Errorf("serve metrics: read request: %w", err)
	}
	status, body := http.StatusOK, []byte(nil)
	switch {
	case request.Method != http.MethodGet && request.Method != http.MethodHead:
		status, body = http.StatusMethodNotAllowed, []byte("only GET and HEAD\n")
	case request.URL.Path != "/metrics":
		status, body = http.StatusNotFound, []byte("there is /metrics\n")
	default:
		if body, err = text(); err != nil {
			status, body = http.StatusInternalServerError, []byte("the metrics cannot be made; the node's log says why\n")
		}
	}
	return errors.Join(err, answer(conn, status, body, request.Method == http.MethodHead))
}

var errLarge = fmt.Errorf("a request has at most %d bytes and %d lines", maxRequestBytes, maxHeaders)

// readHead reads up to the empty line. A body is left where it is.
func readHead(conn io.Reader) (head []byte, err error) {
	buffer := make([]byte, maxRequestBytes)
	n := 0
	for n < len(buffer) {
		got, err := conn.Read(buffer[n:])
		n += got
		if end := bytes.Index(buffer[:n], []byte("\r\n\r\n")); end >= 0 {
			head = buffer[:end+4]
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read request: %w", err)
		}
	}
	if head == nil || bytes.Count(head, []byte("\n")) > maxHeaders {
		return nil, errLarge
	}
	return head, nil
}

func answer(conn net.Conn, status int, body []byte, headOnly bool) error {
	if err := conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	kind := "text/plain; charset=utf-8"
	if status == http.StatusOK {
		kind = "text/plain; version=0.0.4; charset=utf-8"
	}
	reply := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %s\r\nConnection: close\r\n\r\n",
		status, http.StatusText(status), kind, strconv.Itoa(len(body)))
	if !headOnly {
		reply = append(reply, body...)
	}
	if _, err := conn.Write(reply); err != nil {
		return fmt.Errorf("serve metrics: answer: %w", err)
	}
	// What is left unread would have the kernel reset the connection, and the answer be lost.
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		if err := conn.SetDeadline(time.Now().Add(closeTime)); err == nil {
			_, _ = io.CopyN(io.Discard, conn, maxRequestBytes) // until he closes
		}
	}
	return nil
}
