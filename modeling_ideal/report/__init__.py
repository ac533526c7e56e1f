"""The report on judged pictures: one HTML page that needs no other file. Knows results, not the model."""
