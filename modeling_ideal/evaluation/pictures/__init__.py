"""The pictures of an evaluation: montages of heat maps, curves, and t-SNE plots of deviations."""
