"""The pictures of README and docs/, all made by `make pictures`, from rendered parts and the embedded model."""
