"""Training of the head and distillation of backbones. Sits above the model and the data; never shipped to the Hub."""
