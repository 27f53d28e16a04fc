// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// Limits for the clients of the port, which may be anyone on the network.
const (
	maxHeaderBytes = 4 << 10 // and 4 KiB that net/http adds
	requestTime    = 5 * time.Second
	answerTime     = requestTime + lookTime + 10*time.Second
	maxOpen        = 16
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
	return server.Serve(&bounded{Listener: listener})
}

// bounded closes connections of which there are too many: whoever has the most of them gives up his oldest one for each that comes.
type bounded struct {
	net.Listener

	mu   sync.Mutex
	open []*counted // the oldest first
}

func (b *bounded) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &counted{Conn: conn, of: b, host: hostOf(conn.RemoteAddr())}
	if given := b.take(c); given != nil {
		given.Close()
	}
	return c, nil
}

// hostOf is who has a connection: this node has as many addresses as it likes, and each host of IPv6 has 2^64.
func hostOf(address net.Addr) netip.Prefix {
	of, _ := netip.ParseAddrPort(address.String()) // none: all of a socket that has none
	ip, bits := of.Addr().Unmap(), 64
	switch {
	case ip.IsLoopback():
		ip = netip.IPv6Loopback()
	case ip.Is4():
		bits = 32
	}
	host, _ := ip.WithZone("").Prefix(bits)
	return host
}

// take returns the connection that another one is closed for.
func (b *bounded) take(c *counted) (given *counted) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = append(b.open, c)
	if len(b.open) <= maxOpen {
		return nil
	}
	of := make(map[netip.Prefix]int)
	for _, c := range b.open {
		of[c.host]++
	}
	for _, c := range b.open {
		if given == nil || of[c.host] > of[given.host] {
			given = c
		}
	}
	return given
}

func (b *bounded) leave(c *counted) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = slices.DeleteFunc(b.open, func(other *counted) bool { return other == c })
}

// counted is one of them.
type counted struct {
	net.Conn

	of   *bounded
	host netip.Prefix
}

func (c *counted) Close() error {
	c.of.leave(c)
	return c.Conn.Close()
}

// CloseWrite is for net/http, which lets who has not read all of an answer read on.
func (c *counted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
