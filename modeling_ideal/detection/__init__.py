"""`ideal references` and `ideal detect`: from folders of images to a references file, results and a report."""
