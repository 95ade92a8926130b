"""The dashboard: operations over HTTP, and pages made of them."""
