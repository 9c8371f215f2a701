"""Row bytes in, RequestRow or RowError out."""
