"""From results.json to Markdown tables, with the paper's figures beside ours; needs neither torch nor datasets."""
