// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// What who reaches the port may take. Anybody may open connections.
const (
	maxHeaderBytes = 4 << 10 // and 4 KiB that net/http adds
	requestTime    = 5 * time.Second
	answerTime     = requestTime + lookTime + 10*time.Second
	maxOpen        = 16
	// maxOfOne is of one address: a scrape from another one has room.
	maxOfOne = 12
)

// serve answers until it cannot.
func serve(listener net.Listener, l *looker) error {
	metrics := promhttp.HandlerFor(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := l.look()
		if err != nil {
			fmt.Fprintln(os.Stderr, "vgpu-exporter:", err)
		}
		if families == nil {
			return nil, errors.New("the metrics cannot be made; the node's log says why") // which is not for strangers
		}
		return families, nil // they say that the configuration is not believed
	}), promhttp.HandlerOpts{})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	server := http.Server{Handler: mux, MaxHeaderBytes: maxHeaderBytes, ReadTimeout: requestTime, WriteTimeout: answerTime}
	server.SetKeepAlivesEnabled(false)
	return server.Serve(&bounded{Listener: listener, of: make(map[string]int)})
}

// bounded closes connections of which there are too many.
type bounded struct {
	net.Listener

	mu  sync.Mutex
	all int
	of  map[string]int
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, _ := net.SplitHostPort(conn.RemoteAddr().String()) // "": all of a socket that has none
		if b.take(host) {
			return &counted{Conn: conn, leave: sync.OnceFunc(func() { b.leave(host) })}, nil
		}
		conn.Close()
	}
}

func (b *bounded) take(host string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all >= maxOpen || b.of[host] >= maxOfOne {
		return false
	}
	b.all++
	b.of[host]++
	return true
}

func (b *bounded) leave(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all--
	if b.of[host]--; b.of[host] == 0 {
		delete(b.of, host)
	}
}

// counted is one of them.
type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// CloseWrite is for net/http, which lets who has not read all of an answer read on.
func (c *counted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
