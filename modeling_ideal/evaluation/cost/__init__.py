"""What a model costs: parameters, operations, frames per second and memory."""
