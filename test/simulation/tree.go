// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

// room is what slurmctld looks at. Where it counts by node: memory and time. Where it knows each GPU: the shards of the
// GPU that has most left, and how many GPUs nobody uses.
type room [2]int64

func (r room) has(need room) bool { return r[0] >= need[0] && r[1] >= need[1] }

// tree finds nodes with room without looking at all: each of its knots has the most that there is below it.
type tree struct {
	nodes []*node
	most  []room // 1 is the root, 2i and 2i+1 are below i
	width int
}

func newTree(nodes []*node) tree {
	t := tree{nodes: nodes, width: 1}
	for t.width < len(nodes) {
		t.width *= 2
	}
	t.most = make([]room, 2*t.width)
	for i := range t.most {
		t.most[i] = room{-1, -1}
	}
	for _, n := range nodes {
		t.update(n)
	}
	return t
}

func (t *tree) update(n *node) {
	at := t.width + n.number
	t.most[at] = n.room()
	for at /= 2; at >= 1; at /= 2 {
		a, b := t.most[2*at], t.most[2*at+1]
		t.most[at] = room{max(a[0], b[0]), max(a[1], b[1])}
	}
}

// first is the first node by number, from one on and then from the beginning, that has room and will do; nil: none.
func (t *tree) first(from int, need room, will func(*node) bool) *node {
	if n := t.below(1, 0, t.width, from, t.width, need, will); n != nil || from == 0 {
		return n
	}
	return t.below(1, 0, t.width, 0, from, need, will)
}

// below looks at the nodes from…to of those from low to high.
func (t *tree) below(at, low, high, from, to int, need room, will func(*node) bool) *node {
	if high <= from || low >= to || !t.most[at].has(need) {
		return nil
	}
	if high-low == 1 {
		if n := t.nodes[low]; will(n) {
			return n
		}
		return nil
	}
	middle := (low + high) / 2
	if n := t.below(2*at, low, middle, from, to, need, will); n != nil {
		return n
	}
	return t.below(2*at+1, middle, high, from, to, need, will)
}

// emptiest is the node with most room that will do, going by the scarcer of memory and time; nil: none.
func (t *tree) emptiest(need room, will func(*node) bool) *node {
	var best *node
	for _, n := range t.nodes {
		if n.free.has(need) && (best == nil || n.freePart() > best.freePart()) && will(n) {
			best = n
		}
	}
	return best
}
