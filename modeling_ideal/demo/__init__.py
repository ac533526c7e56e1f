"""`ideal demo`: detection on rendered images, which needs no data."""
