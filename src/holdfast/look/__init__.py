"""How pages look: the templates and the sheet of the dashboard and of files taken elsewhere."""
