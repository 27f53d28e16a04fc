// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// ask sends a request over TCP, and says what came back and whether the text was made for it.
func ask(t *testing.T, request string, text func() ([]byte, error)) (response *http.Response, body string, made bool) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			served <- err
			return
		}
		served <- Serve(conn, func() ([]byte, error) { made = true; return text() })
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, request) // the server may have had enough before its end
	_ = conn.(*net.TCPConn).CloseWrite()
	method, _, _ := strings.Cut(request, " ")
	response, err = http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err == nil {
		defer response.Body.Close()
		all, readErr := io.ReadAll(response.Body)
		if readErr != nil {
			t.Errorf("%.60q: the answer breaks off: %v", request, readErr)
		}
		body = string(all)
	}
	<-served
	return response, body, made
}

func TestServe(t *testing.T) {
	large := strings.Repeat("x", 100_000)
	for _, tc := range []struct {
		name, request string
		status        int // 0: no answer
		made          bool
	}{
		{"scrape", "GET /metrics HTTP/1.1\r\nHost: n1\r\nAccept-Encoding: gzip\r\n\r\n", 200, true},
		{"scrape with a query", "GET /metrics?x=y HTTP/1.0\r\n\r\n", 200, true},
		{"head", "HEAD /metrics HTTP/1.1\r\nHost: n1\r\n\r\n", 200, true},
		{"another page", "GET / HTTP/1.1\r\nHost: n1\r\n\r\n", 404, false},
		{"post", "POST /metrics HTTP/1.1\r\nHost: n1\r\nContent-Length: 100000\r\n\r\n" + large, 405, false},
		{"garbage", "\x16\x03\x01\x02\x00\x01\r\n\r\n", 400, false},
		{"a long header", "GET /metrics HTTP/1.1\r\nX: " + large + "\r\n\r\n", 431, false},
		{"many headers", "GET /metrics HTTP/1.1\r\nHost: n1\r\n" + strings.Repeat("X: y\r\n", 200) + "\r\n", 431, false},
		{"no end", "GET /metrics HTTP/1.1\r\n", 0, false},
		{"nothing", "", 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			response, body, made := ask(t, tc.request, func() ([]byte, error) { return []byte("up 1\n"), nil })
			if made != tc.made {
				t.Errorf("the text was made: %v", made)
			}
			if tc.status == 0 {
				if response != nil {
					t.Errorf("answered by %s", response.Status)
				}
				return
			}
			if response == nil || response.StatusCode != tc.status {
				t.Fatalf("answered by %+v, want %d", response, tc.status)
			}
			if tc.status == 200 && !strings.HasPrefix(tc.request, "HEAD") && body != "up 1\n" {
				t.Errorf("the answer is %q", body)
			}
		})
	}
}

func TestAFailureIsNotToldToStrangers(t *testing.T) {
	response, body, _ := ask(t, "GET /metrics HTTP/1.1\r\nHost: n1\r\n\r\n", func() ([]byte, error) { return nil, errors.New("secret path") })
	if response == nil || response.StatusCode != 500 || strings.Contains(body, "secret") {
		t.Errorf("%+v %q", response, body)
	}
}
