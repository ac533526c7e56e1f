"""Distillation of backbones: a small one learns the patch features of a large one from unlabelled pictures."""
