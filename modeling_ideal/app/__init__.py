"""The app in a browser: references, calibration and verdicts by hand. What it does is in functions; Gradio shows it."""
