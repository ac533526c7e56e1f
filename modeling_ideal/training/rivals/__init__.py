"""The methods that the paper compares IDEAL with and that are trained, on the same source, features and episodes."""
