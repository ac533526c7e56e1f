"""Training on episodes of cached features; sits above the model and the data, is never shipped."""
