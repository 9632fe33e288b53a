import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmlmc.streaming.slices import put, take

ARRAYS = jnp.arange(24.0).reshape(2, 4, 3)
ROWS = -jnp.ones((2, 2, 3))


@pytest.mark.parametrize("places", [jnp.array(1), jnp.array([0, 2])])
@pytest.mark.parametrize(("of_array", "of_rows"), [(0, 0), (None, 0), (0, None)])
def test_mapped_slices_are_those_of_jax_whatever_is_mapped(places, of_array, of_rows):
    array, rows = (x if axis == 0 else x[0] for x, axis in ((ARRAYS, of_array), (ROWS, of_rows)))
    axes = of_array, of_rows, 0 if places.ndim else None
    found = jax.vmap(put(), axes)(array, rows, places)
    wanted = jax.vmap(jax.lax.dynamic_update_slice_in_dim, (*axes, None))(array, rows, places, 0)
    np.testing.assert_array_equal(found, wanted)
    if of_array == 0:
        found = jax.vmap(take(2), (0, axes[2]))(array, places)
        wanted = jax.vmap(lambda one, place: jax.lax.dynamic_slice_in_dim(one, place, 2), (0, axes[2]))(array, places)
        np.testing.assert_array_equal(found, wanted)


def test_maps_of_maps_stay_slices():
    def both(arrays, rows):
        return jax.vmap(jax.vmap(put(), (0, 0, None)), (0, 0, None))(arrays, rows, jnp.array(1))

    arrays, rows = jnp.stack([ARRAYS] * 2), jnp.stack([ROWS] * 2)
    assert "scatter" not in str(jax.make_jaxpr(both)(arrays, rows))
    np.testing.assert_array_equal(both(arrays, rows)[1, 1, 1:3], rows[1, 1])
