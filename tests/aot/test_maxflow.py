"""Maximum flow against scipy's, and the cut against its definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from flambeau.aot.maxflow import INFINITE, FlowNetwork

EDGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 20)), max_size=40)


@settings(max_examples=150, deadline=None)
@given(EDGES)
def test_flow_and_cut(edges):
    capacity = np.zeros((8, 8), np.int32)
    network = FlowNetwork()
    for u, v, c in edges:
        if u != v:
            capacity[u, v] += c
            network.add_edge(u, v, c)
    flow, side = network.min_cut(0, 7)
    assert flow == maximum_flow(csr_array(capacity), 0, 7).flow_value
    assert 0 in side and 7 not in side
    assert flow == sum(c for u, v, c in edges if u != v and u in side and v not in side)


def test_a_cut_that_cannot_be():
    network = FlowNetwork()
    network.add_edge("s", "a", INFINITE)
    network.add_edge("a", "t", INFINITE)
    assert network.min_cut("s", "t") == (INFINITE, set())


def test_infinite_edges_are_never_cut():
    network = FlowNetwork()
    for tail, head, capacity in [("s", "a", 3), ("a", "b", INFINITE), ("b", "t", 5), ("s", "b", 1), ("a", "t", INFINITE)]:
        network.add_edge(tail, head, capacity)
    assert network.min_cut("s", "t") == (4, {"s"})


def test_a_deep_network_is_no_recursion():
    network = FlowNetwork()
    for i in range(5000):
        network.add_edge(i, i + 1, 10 - (i == 2500))
    flow, side = network.min_cut(0, 5000)
    assert flow == 9 and len(side) == 2501


@pytest.mark.parametrize("n", [3])
def test_parallel_edges_add_up(n):
    network = FlowNetwork()
    for _ in range(n):
        network.add_edge("s", "t", 2)
    assert network.min_cut("s", "t")[0] == 2 * n
