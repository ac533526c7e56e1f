"""What is written and printed: files that are whole or not there, and tables. Knows no other room."""
