"""`ideal references` and `ideal detect`: from folders of pictures to a references file, verdicts and overlays."""
