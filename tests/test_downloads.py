"""Images by their address: no endless ones, neither in bytes nor in seconds."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from modeling_ideal import image_inputs


class Endless(BaseHTTPRequestHandler):
    def log_message(self, *_):
        """Say nothing."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(bytes(1000))
        except OSError:
            return


@pytest.mark.parametrize("limit", ["MOST_BYTES_TO_FETCH", "SECONDS_TO_ANSWER"])
def test_a_server_that_never_ends_is_left(monkeypatch, limit):
    monkeypatch.setattr(image_inputs, limit, {"MOST_BYTES_TO_FETCH": 10_000, "SECONDS_TO_ANSWER": 0.2}[limit])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        with pytest.raises(
            ValueError, match=r"part: http.*expected a readable image, got OSError: more than \d+ bytes"
        ):
            image_inputs.load_image(f"http://127.0.0.1:{server.server_address[1]}/part.png", "part")
    finally:
        server.shutdown()
        server.server_close()
