"""The paper's protocol: fixed reference sets, every method on the same features, means over categories and seeds."""
