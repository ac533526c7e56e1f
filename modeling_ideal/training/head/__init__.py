"""Training of the head, the Intrinsic Deviation Encoder, on episodes of cached features."""
