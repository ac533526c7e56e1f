"""Products by the faster library are those of NumPy in double precision, and change nothing that they should not."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from modeling_ideal import matrix_products
from modeling_ideal.matrix_products import fast_layers, inner_products, onednn_is_faster

from .conftest import random_images, threads

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
WAYS = [pytest.param(True, marks=needs_onednn, id="oneDNN"), pytest.param(False, id="as torch does it")]


@pytest.fixture
def choose(monkeypatch):
    """Choose the library, whatever the processor; returns the calls that oneDNN got."""
    calls = []
    by_onednn = matrix_products._by_onednn

    def counted(*given):
        calls.append(given)
        return by_onednn(*given)

    def chosen(onednn):
        monkeypatch.setattr(matrix_products, "onednn_is_faster", lambda: onednn)
        monkeypatch.setattr(matrix_products, "_by_onednn", counted)
        return calls

    return chosen


@pytest.mark.parametrize("onednn", WAYS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 7, 3), (64, 1000, 384)])
def test_inner_products_are_those_of_numpy(choose, onednn, shape):
    calls = choose(onednn)
    generator = torch.Generator().manual_seed(0)
    rows, columns = torch.randn(shape[0], shape[2], generator=generator), torch.randn(shape[1:], generator=generator)
    expected = rows.double().numpy() @ columns.double().numpy().T
    np.testing.assert_allclose(inner_products(rows, columns).numpy(), expected, atol=1e-5 * shape[2] ** 0.5)
    assert len(calls) == onednn


@pytest.mark.parametrize("onednn", WAYS)
def test_empty_and_sparse_memory_and_other_types(choose, onednn):
    calls = choose(onednn)
    assert inner_products(torch.zeros(0, 4), torch.zeros(3, 4)).shape == (0, 3)
    assert inner_products(torch.ones(2, 4), torch.ones(0, 4)).shape == (2, 0)
    assert torch.equal(inner_products(torch.ones(8, 2)[::2], torch.ones(3, 2)), torch.full((4, 3), 2.0))
    assert inner_products(torch.ones(2, 4, dtype=torch.float64), torch.ones(3, 4, dtype=torch.float64)).dtype == (
        torch.float64
    )
    with torch.autocast("cpu", torch.bfloat16):
        assert inner_products(torch.ones(2, 4), torch.ones(3, 4)).dtype == torch.bfloat16
    assert not calls


@pytest.mark.parametrize("onednn", WAYS)
def test_a_gradient_is_kept(choose, onednn):
    calls = choose(onednn)
    rows = torch.ones(2, 4, requires_grad=True)
    with fast_layers():
        (inner_products(rows, torch.ones(3, 4)).sum() + F.linear(rows, torch.ones(3, 4)).sum()).backward()
    assert torch.equal(rows.grad, torch.full((2, 4), 6.0))
    assert not calls


@needs_onednn
def test_linear_layers_within_the_context_alone(choose):
    calls = choose(True)
    torch.manual_seed(0)
    layer, image = nn.Linear(6, 5), torch.randn(2, 3, 6)
    with torch.no_grad():
        expected = layer(image)
        assert not calls
        with fast_layers():
            torch.testing.assert_close(layer(image), expected)
    assert len(calls) == 1


def plain_attention(query, key, value, scale):
    """In NumPy, in double precision."""
    query, key, value = (each.double().numpy() for each in (query, key, value))
    similarities = np.exp(scale * query @ key.swapaxes(-1, -2))
    return similarities / similarities.sum(-1, keepdims=True) @ value


@pytest.mark.parametrize("onednn", WAYS)
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("at_once", [1, 64, 2**18])
@torch.no_grad()
def test_attention_is_that_of_numpy(choose, monkeypatch, onednn, scale, at_once):
    calls = choose(onednn)
    monkeypatch.setattr(matrix_products, "SIMILARITIES_AT_ONCE", at_once)
    query, key, value = torch.randn(3, 2, 10, 4, 8, generator=torch.Generator().manual_seed(0)).transpose(2, 3)
    with threads(1), fast_layers():
        got = F.scaled_dot_product_attention(query, key, value, scale=scale)
        first = F.scaled_dot_product_attention(query[:1], key[:1], value[:1], scale=scale)
    np.testing.assert_allclose(got.numpy(), plain_attention(query, key, value, scale or 8**-0.5), atol=1e-5)
    torch.testing.assert_close(first, got[:1], atol=1e-6, rtol=1e-6)  # a picture does not depend on the others
    assert bool(calls) == onednn


@needs_onednn
@torch.no_grad()
def test_attention_with_more_to_it_is_left_to_torch(choose):
    calls = choose(True)
    query = torch.randn(1, 2, 5, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    expected = F.scaled_dot_product_attention(query, query, query, mask)
    with threads(1), fast_layers():
        for options in ({"attn_mask": mask}, {"is_causal": True}):
            torch.testing.assert_close(F.scaled_dot_product_attention(query, query, query, **options), expected)
        torch.testing.assert_close(F.scaled_dot_product_attention(query, query, query, mask), expected)
    with threads(matrix_products.MOST_THREADS + 1), fast_layers():
        F.scaled_dot_product_attention(query, query, query)
    assert not calls


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_a_row_does_not_depend_on_the_others(choose, bias):
    choose(True)
    torch.manual_seed(0)
    layer, images = nn.Linear(384, 1536, bias=bias), torch.randn(4, 257, 384)
    with fast_layers():
        together = layer(images)
        torch.testing.assert_close(layer(images[1:2]), together[1:2], atol=1e-6, rtol=1e-6)


@needs_onednn
def test_features_of_a_model_are_the_same(choose, model):
    images = random_images(2)
    choose(False)
    expected = model.extract_features(images)
    calls = choose(True)
    torch.testing.assert_close(model.extract_features(images), expected, atol=1e-5, rtol=1e-5)
    assert calls


@pytest.mark.parametrize(
    ("name", "capability", "faster"),
    [
        ("AMD EPYC", "AVX512", True),
        ("AMD EPYC", "AVX2", False),
        ("AMD EPYC", "DEFAULT", False),
        ("Intel(R) Xeon(R) Platinum 8481C", "AVX512", False),
        ("", "AVX512", False),
    ],
)
@needs_onednn
def test_amd_with_avx512_alone(monkeypatch, name, capability, faster):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": name}, raising=False)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert onednn_is_faster.__wrapped__() is faster


def test_nothing_changes_where_torch_cannot_tell(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert onednn_is_faster.__wrapped__() is False


@needs_onednn
@pytest.mark.skipif(not torch._dynamo.is_dynamo_supported(), reason="torch.compile does not run on this platform")
@torch.no_grad()
def test_a_compiled_module_works_within_the_context(choose):
    choose(True)
    torch.manual_seed(0)
    layer, image = nn.Linear(6, 5), torch.randn(2, 6)
    expected = layer(image)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    with fast_layers():
        torch.testing.assert_close(compiled(image), expected)
