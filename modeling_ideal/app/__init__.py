"""The app in a browser: references, calibration, verdicts and corrections. Functions do the work; Gradio shows it."""
