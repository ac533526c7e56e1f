"""The paper's protocol and analyses, on top of the model, the data and the metrics."""
