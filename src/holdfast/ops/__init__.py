"""Every verb once: plain typed functions, and the table that names them."""
