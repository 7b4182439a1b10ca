"""Position along the curve that a cloud of points follows, by one-dimensional Isomap.

Isomap (Tenenbaum, de Silva and Langford 2000) measures distances through a graph of near neighbours, which unrolls a
bent curve; the leading coordinate of classical scaling of these distances is the position. A principal component would
fold a horseshoe. Pieces of the graph are joined by their shortest links (edges of the minimum spanning tree). The sign
of the coordinate is arbitrary.
"""

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree, shortest_path

from interp.statistics.neighbours import distances, nearest
from interp.statistics.spectra import centred_gram, leading_vectors, scaled

N_NEIGHBOURS = 10


def curve_position(rows: np.ndarray, n_neighbours: int = N_NEIGHBOURS) -> Float[np.ndarray, " row"]:
    """The one-dimensional Isomap coordinate of every row, in units of distance.

    Needs three rows or more; equal rows share a place.
    """
    centred = scaled(rows, "centred")
    between = distances(centred)
    if between.max() == 0:
        return np.zeros(len(rows))
    along = shortest_path(_neighbour_graph(between, min(n_neighbours, len(rows) - 1)), directed=False)
    inner = -0.5 * centred_gram(np.square(along))
    axis = leading_vectors(inner, 1)[:, 0]
    length = np.sqrt(max(0.0, float(axis @ inner @ axis)))
    sign = -1.0 if axis[np.abs(axis).argmax()] < 0 else 1.0
    return axis * length * sign


def _neighbour_graph(between: np.ndarray, n_neighbours: int) -> csr_matrix:
    n = len(between)
    # scipy reads a zero as "no edge": equal points get a tiny distance instead
    hair = 1e-12 * between.max()
    distance, index = nearest(between, n_neighbours)
    from_row = np.repeat(np.arange(n), n_neighbours)
    graph = csr_matrix((np.maximum(distance.ravel(), hair), (from_row, index.ravel())), shape=(n, n))
    if connected_components(graph, directed=False)[0] > 1:
        tree = minimum_spanning_tree(np.maximum(between, hair) - hair * np.eye(n))
        graph = graph.maximum(tree)
    return csr_matrix(graph)
