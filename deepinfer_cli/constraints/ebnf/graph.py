"""Groups of nodes of a graph that can reach each other."""

from __future__ import annotations

from collections.abc import Sequence


def components(edges: Sequence[Sequence[int]]) -> list[list[int]]:
    """Strongly connected components; each comes after all that it can reach. Tarjan's, without recursion."""
    num_nodes = len(edges)
    number = [0] * num_nodes  # order of entry, from 1; 0: not entered
    low = [0] * num_nodes
    is_open = bytearray(num_nodes)
    open_nodes: list[int] = []
    found: list[list[int]] = []
    count = 0
    for root in range(num_nodes):
        if number[root]:
            continue
        path = [(root, iter(edges[root]))]
        count += 1
        number[root] = low[root] = count
        open_nodes.append(root)
        is_open[root] = 1
        while path:
            node, targets = path[-1]
            for target in targets:
                if not number[target]:
                    count += 1
                    number[target] = low[target] = count
                    open_nodes.append(target)
                    is_open[target] = 1
                    path.append((target, iter(edges[target])))
                    break
                if is_open[target]:
                    low[node] = min(low[node], number[target])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == number[node]:
                    at = len(open_nodes) - 1
                    while open_nodes[at] != node:
                        at -= 1
                    component = open_nodes[at:]
                    del open_nodes[at:]
                    for member in component:
                        is_open[member] = 0
                    found.append(component)
    return found
