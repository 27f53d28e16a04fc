// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// played is a looker whose vgpuctl is a script, and the file in which that notes each of its starts.
func played(t *testing.T, script string) (l *looker, starts string) {
	t.Helper()
	dir := t.TempDir()
	starts = filepath.Join(dir, "starts")
	node, err := json.Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "vgpuctl")
	text := fmt.Sprintf("#!/bin/sh\necho >>%s\nsays() { cat %[2]s; }\n%s\n", starts, filepath.Join(dir, "node"), script)
	if err := os.WriteFile(filepath.Join(dir, "node"), node, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return &looker{program: program, options: all, wait: lookTime + time.Second}, starts
}

func started(t *testing.T, starts string) int {
	t.Helper()
	text, err := os.ReadFile(starts)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n"))
}

func served(t *testing.T, l *looker) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() { _ = serve(listener, l) }()
	return listener.Addr().String()
}

// ask sends a request over TCP; nil: it was not answered.
func ask(t *testing.T, address, request string) (response *http.Response, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, request) // the server may have had enough before its end
	_ = conn.(*net.TCPConn).CloseWrite()
	method, _, _ := strings.Cut(request, " ")
	response, err = http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return nil, ""
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		t.Errorf("%.60q: the answer breaks off: %v", request, err)
	}
	return response, string(all)
}

const scrape = "GET /metrics HTTP/1.1\r\nHost: n1\r\n\r\n"

// Nothing is looked up for who asks for something else.
func TestServe(t *testing.T) {
	large := strings.Repeat("x", 100_000)
	for _, tc := range []struct {
		name, request string
		status        int // 0: no answer
		looked        int
	}{
		{"scrape", scrape, 200, 1},
		{"scrape with a query", "GET /metrics?x=y HTTP/1.0\r\n\r\n", 200, 1},
		{"head", "HEAD /metrics HTTP/1.1\r\nHost: n1\r\n\r\n", 200, 1},
		{"another page", "GET / HTTP/1.1\r\nHost: n1\r\n\r\n", 404, 0},
		{"post", "POST /metrics HTTP/1.1\r\nHost: n1\r\nContent-Length: 100000\r\n\r\n" + large, 405, 0},
		{"garbage", "\x16\x03\x01\x02\x00\x01\r\n\r\n", 400, 0},
		{"a long header", "GET /metrics HTTP/1.1\r\nX: " + large + "\r\n\r\n", 431, 0},
		{"no end", "GET /metrics HTTP/1.1\r\n", 400, 0},
		{"nothing", "", 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, starts := played(t, "says")
			response, body := ask(t, served(t, l), tc.request)
			if n := started(t, starts); n != tc.looked {
				t.Errorf("the node was looked at %d times", n)
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
			want, err := os.ReadFile("testdata/series.prom")
			if err != nil {
				t.Fatal(err)
			}
			if tc.status == 200 && !strings.HasPrefix(tc.request, "HEAD") && body != string(want) {
				t.Errorf("the answer is %q", body)
			}
		})
	}
}

func TestAFailureIsNotToldToStrangers(t *testing.T) {
	l, _ := played(t, "echo secret path >&2; exit 1")
	if response, body := ask(t, served(t, l), scrape); response == nil || response.StatusCode != 500 || strings.Contains(body, "secret") {
		t.Errorf("%+v %q", response, body)
	}
}

// What vgpuctl says beside its exit code, as where config.yaml is not believed, is said.
func TestWhatIsKnownIsSaidBesideAnError(t *testing.T) {
	l, _ := played(t, "says; exit 78")
	if response, body := ask(t, served(t, l), scrape); response == nil || response.StatusCode != 200 || !strings.Contains(body, "slurm_vgpu_jobs_waiting 2") {
		t.Errorf("%+v %q", response, body)
	}
}

// TestMain is the exporter too, where a test begins it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "exporter" {
		os.Exit(run(os.Args[2:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// begun has the exporter's program, beside which stands a vgpuctl that says what it was asked.
func begun(t *testing.T, before string, args ...string) *exec.Cmd {
	t.Helper()
	l, _ := played(t, `[ "$1 $2 $4" = "metrics --config --node" ] && says; exit 78`)
	program := filepath.Join(filepath.Dir(l.program), "vgpu-exporter")
	if err := os.Link(os.Args[0], program); err != nil {
		if err := exec.Command("cp", os.Args[0], program).Run(); err != nil {
			t.Fatal(err)
		}
	}
	return exec.Command("/bin/sh", append([]string{"-c", before + `exec "$0" exporter "$@"`, program}, args...)...)
}

// systemd gives it a socket, and it makes none.
func TestItTakesTheSocketOfSystemd(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	cmd := begun(t, "LISTEN_FDS=1 LISTEN_PID=$$ ", "--listen", "no such address")
	cmd.ExtraFiles = []*os.File{file}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	file.Close()
	if response, body := ask(t, listener.Addr().String(), scrape); response == nil || response.StatusCode != 200 || !strings.Contains(body, "slurm_vgpu_vgpud_up 0") {
		t.Errorf("%+v %q", response, body)
	}
}

func TestItPrintsAndSaysTheExitCode(t *testing.T) {
	out, err := begun(t, "", "--text", "--steps").Output()
	if exit, is := errors.AsType[*exec.ExitError](err); !is || exit.ExitCode() != 78 || !strings.Contains(string(out), "slurm_vgpu_step_memory_used_bytes{") {
		t.Errorf("%v: %s", err, out)
	}
	for _, args := range [][]string{{"--text", "--textfile", "x"}, {"--text", "--compat=dcgm"}, {"--text", "--over=9s"}, {"--every=-1s"}, {"word"}, {"--word"}} {
		err := begun(t, "", args...).Run()
		if exit, is := errors.AsType[*exec.ExitError](err); !is || exit.ExitCode() != exitUsage {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// However much a vgpuctl says, the exporter keeps a part.
func TestOfAFailureTheBeginningIsKept(t *testing.T) {
	l, _ := played(t, `head -c 100000 /dev/zero | tr '\0' x >&2; exit 1`)
	if _, err := l.look(); err == nil || strings.Count(err.Error(), "x") < 4<<10 || len(err.Error()) > 5<<10 {
		t.Errorf("it says %.200v", err)
	}
}

// A driver that hangs holds one vgpuctl, and whoever asks hears of it.
func TestALookThatHangsIsOne(t *testing.T) {
	l, starts := played(t, "exit 1")
	l.last = &look{done: make(chan struct{})}
	l.wait = time.Millisecond
	for range 3 {
		if _, err := l.look(); !errors.Is(err, errSlow) {
			t.Errorf("it says %v", err)
		}
	}
	if n := started(t, starts); n != 0 {
		t.Errorf("%d more began", n)
	}
}

// However many ask, one vgpuctl looks.
func TestRequestsShareALook(t *testing.T) {
	l, starts := played(t, "sleep 0.3; says")
	address := served(t, l)
	answers := make(chan int, maxOpen)
	for range maxOpen {
		go func() {
			response, _ := ask(t, address, scrape)
			if response == nil {
				answers <- 0
				return
			}
			answers <- response.StatusCode
		}()
	}
	for range maxOpen {
		if status := <-answers; status != 200 {
			t.Errorf("answered by %d", status)
		}
	}
	if n := started(t, starts); n != 1 {
		t.Errorf("the node was looked at %d times", n)
	}
}

// from is a connection from an address.
func from(address string) *counted {
	here, there := net.Pipe()
	there.Close()
	tcp, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		panic(err)
	}
	return &counted{Conn: here, host: hostOf(tcp)}
}

// Whoever has the most connections gives one up: nobody keeps a scrape from elsewhere away, and no scrape of his own.
func TestConnectionsAreBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		many func(i int) string
		host netip.Prefix
	}{
		"this node": {func(i int) string { return fmt.Sprintf("127.0.%d.1:%d", i, 1000+i) }, netip.MustParsePrefix("::/64")},
		"IPv4":      {func(i int) string { return fmt.Sprintf("[::ffff:10.0.0.1]:%d", 1000+i) }, netip.MustParsePrefix("10.0.0.1/32")},
		"IPv6":      {func(i int) string { return fmt.Sprintf("[2001:db8::%d]:1000", i) }, netip.MustParsePrefix("2001:db8::/64")},
	} {
		b := &bounded{}
		var oldest *counted
		for i := range maxOpen {
			c := from(tc.many(i))
			if i == 0 {
				oldest = c
			}
			if given := b.take(c); given != nil || c.host != tc.host {
				t.Errorf("%s: connection %d of %s: one is closed: %v", name, i, c.host, given != nil)
			}
		}
		scrape := from("10.0.0.2:1000")
		if given := b.take(scrape); given != oldest {
			t.Errorf("%s: another one than the oldest is closed for a scrape from elsewhere", name)
		}
		b.leave(oldest)
		for i := range 3 * maxOpen { // they cannot have it closed
			given := b.take(from(tc.many(i)))
			if given == nil || given == scrape {
				t.Fatalf("%s: the scrape is closed, or none", name)
			}
			b.leave(given)
		}
		b.leave(scrape)
		if given := b.take(from(tc.many(0))); given != nil {
			t.Errorf("%s: who has left still counts", name)
		}
	}
}

// A scrape gets through while others send nothing: also from their own address, and after they have gone.
func TestAScrapeGetsThrough(t *testing.T) {
	l, _ := played(t, "says")
	address := served(t, l)
	var idle []net.Conn
	for range 2 * maxOpen {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		idle = append(idle, conn)
	}
	for range 2 {
		if response, _ := ask(t, address, scrape); response == nil || response.StatusCode != http.StatusOK {
			t.Errorf("answered by %+v", response)
		}
		for _, conn := range idle {
			conn.Close()
		}
	}
}

// What a killed run left beside a textfile goes with the next one; what another may be writing stays. A look that fails leaves the file as it was.
func TestTheTextfileIsReplaced(t *testing.T) {
	l, _ := played(t, "says; exit 78")
	dir := t.TempDir()
	path := filepath.Join(dir, "m.prom")
	old := time.Now().Add(-2 * time.Minute)
	for _, name := range []string{".m.prom12345", ".other.prom12345", "m.prom12345", ".m.prom6"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if name != ".m.prom6" {
			_ = os.Chtimes(filepath.Join(dir, name), old, old)
		}
	}
	if err := l.keep(path, 0); err == nil {
		t.Error("the exit code is not said")
	}
	for name, want := range map[string]bool{".m.prom12345": false, ".other.prom12345": true, "m.prom12345": true, ".m.prom6": true, "m.prom": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s is there: %v", name, !want)
		}
	}
	want, _ := os.ReadFile("testdata/series.prom")
	for range 2 {
		if text, err := os.ReadFile(path); err != nil || !bytes.Equal(text, want) {
			t.Fatalf("%v: the file is %q", err, text)
		}
		broken, _ := played(t, "exit 1")
		if err := broken.keep(path, 0); err == nil {
			t.Error("the failure is not said")
		}
	}
}
