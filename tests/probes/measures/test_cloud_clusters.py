"""A cloud of too few clusters is rejected with a message, whatever the number of its prompts."""

import numpy as np
import pytest
from interp.probes.measures.cloud import Cloud

from interp.errors import PromptError
from interp.need import Need
from interp.testing import Shape, synthetic_capture


@pytest.mark.parametrize(("n_clusters", "is_refused"), [(1, True), (2, True), (3, False), (40, False)])
def test_fewer_than_three_clusters_are_refused(n_clusters, is_refused):
    columns = {"cluster": np.arange(40) % n_clusters}
    capture = synthetic_capture((Need("v"),), Shape(40), columns=columns)
    if is_refused:
        with pytest.raises(PromptError, match=f"40 prompts in {n_clusters} clusters?[\\s\\S]*--cluster none"):
            Cloud.of(capture, Need("v"))
    else:
        assert Cloud.of(capture, Need("v")).n_units == n_clusters
