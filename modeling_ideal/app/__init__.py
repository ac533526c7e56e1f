"""The app in a browser: references, calibration, verdicts and corrections. Its work is in functions; Gradio shows it."""
