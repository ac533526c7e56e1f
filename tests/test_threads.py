"""Work in threads: every part once, in order, and nothing left behind in torch's settings."""

import threading

import pytest
import torch

from modeling_ideal.threads import map_in_threads

from .conftest import random_images, random_masks, threads, tiny_model

CPU = torch.device("cpu")


def test_results_come_in_the_order_of_the_parts():
    with threads(3):
        assert map_in_threads(lambda part: part * part, range(20), CPU) == [part * part for part in range(20)]


def test_each_thread_computes_alone_and_others_as_before():
    with threads(3):
        everyone = threading.Barrier(3)

        def numbers(_: int) -> tuple[str, int]:
            everyone.wait(timeout=60)
            torch.ones(4).sum()
            return threading.current_thread().name, torch.get_num_threads()

        seen = map_in_threads(numbers, range(3), CPU)
        assert len({name for name, _ in seen}) == 3
        assert [number for _, number in seen] == [1, 1, 1]
        assert torch.get_num_threads() == 3
        later: list[int] = []
        thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert later == [3]


def test_one_thread_one_part_or_another_device_stays_where_it_is():
    here = threading.current_thread().name
    with threads(1):
        assert map_in_threads(lambda _: threading.current_thread().name, range(3), CPU) == [here] * 3
    with threads(3):
        assert map_in_threads(lambda _: threading.current_thread().name, range(1), CPU) == [here]
        meta = torch.device("meta")
        assert map_in_threads(lambda _: threading.current_thread().name, range(3), meta) == [here] * 3


def test_an_error_in_a_part_reaches_the_caller():
    def fail(part: int) -> None:
        raise ValueError(f"part {part}")

    with threads(2), pytest.raises(ValueError, match="part 0"):
        map_in_threads(fail, range(4), CPU)


@pytest.mark.skipif(not torch._dynamo.is_dynamo_supported(), reason="torch.compile does not run on this platform")
def test_a_compiled_model_scores_as_before():
    model = tiny_model().eval()
    query = random_images(3, seed=1)
    with threads(2), torch.no_grad():
        references = model.encode_references(random_images(2, seed=2), random_images(2, seed=3), random_masks(2))
        expected = model(query, references=references)
        # Threads are in the way of tracing the Python; generating code from it as well would take a minute.
        out = torch.compile(model, backend="eager")(query, references=references)
    torch.testing.assert_close(out.scores, expected.scores, rtol=0, atol=1e-4)
    torch.testing.assert_close(out.anomaly_maps, expected.anomaly_maps, rtol=0, atol=1e-4)
